//! Values survive a round trip. Fuzzing (`tests/fuzz.rs`) covers that no input causes a panic.

#[path = "support/values.rs"]
mod values;

use parm_protocol::grpc::convert;
use parm_protocol::rest::{self, Wanted};
use proptest::prelude::*;

use values::{request, response};

proptest! {
    #[test]
    fn a_request_survives_rest_in_either_form(request in request()) {
        for form in [rest::request::Form::Binary, rest::request::Form::Json] {
            let body = rest::request::encode(&request, form).unwrap();
            let (length, len) = (body.json_length(), body.len());
            let bytes = body.into_bytes();
            prop_assert_eq!(bytes.len(), len);
            let (back, wanted) = rest::request::decode(request.model.clone(), length, bytes).unwrap();
            prop_assert_eq!(&back, &request);
            prop_assert_eq!(wanted.binary, form == rest::request::Form::Binary);
        }
    }

    #[test]
    fn a_response_survives_rest_in_either_form(response in response(), first_only in any::<bool>()) {
        let mut mixed = Wanted::BINARY;
        if let (true, Some(first)) = (first_only, response.outputs.first()) {
            mixed = Wanted { binary: false, outputs: vec![(first.name.clone(), true)] };
        }
        for wanted in [Wanted::BINARY, Wanted::JSON, mixed] {
            let body = rest::response::encode(&response, &wanted).unwrap();
            let back = rest::response::decode(body.json_length(), body.into_bytes()).unwrap();
            prop_assert_eq!(&back, &response);
        }
    }

    #[test]
    fn requests_and_responses_survive_grpc(request in request(), response in response()) {
        let back = convert::request_from_message(convert::request_to_message(request.clone())).unwrap();
        prop_assert_eq!(back, request);
        let back = convert::response_from_message(convert::response_to_message(response.clone())).unwrap();
        prop_assert_eq!(back, response);
    }
}
