//! Any bytes as a gRPC message, into our types and back; and on over HTTP, as a frontend passes requests on.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use parm_fuzz::{as_json_spells, json_is_readable, request_survives, rows_survive};
use parm_protocol::grpc::convert;
use parm_protocol::grpc::inference::{ModelInferRequest, ModelInferResponse};
use parm_protocol::rest::request::Form;
use prost::Message;

fuzz_target!(|data: &[u8]| {
    let body = Bytes::copy_from_slice(data);
    if let Ok(message) = ModelInferRequest::decode(body.clone())
        && let Ok(request) = convert::request::decode(message)
    {
        let message = convert::request::encode(request.clone()).encode_to_vec();
        let message = ModelInferRequest::decode(Bytes::from(message)).expect("what we write is a message");
        assert_eq!(convert::request::decode(message).as_ref(), Ok(&request));
        rows_survive(&request.inputs);
        json_is_readable(&request);
        request_survives(&as_json_spells(request), Form::Binary);
    }
    if let Ok(message) = ModelInferResponse::decode(body)
        && let Ok(response) = convert::response::decode(message)
    {
        let message = convert::response::encode(response.clone()).encode_to_vec();
        let message = ModelInferResponse::decode(Bytes::from(message)).expect("what we write is a message");
        assert_eq!(convert::response::decode(message).as_ref(), Ok(&response));
    }
});
