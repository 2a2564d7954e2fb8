//! Properties of the codecs: values survive a round trip, and no input causes a panic.

use bytes::Bytes;
use parm_protocol::grpc::convert;
use parm_protocol::rest::{self, Wanted};
use parm_protocol::{
    DataType, InferRequest, InferResponse, ModelRef, NamedTensor, Parameter, Parameters, RequestedOutput,
    Shape, Tensor,
};
use proptest::prelude::*;

fn parameter() -> impl Strategy<Value = Parameter> {
    prop_oneof![
        any::<bool>().prop_map(Parameter::Bool),
        any::<i64>().prop_map(Parameter::Int64),
        (i64::MAX as u64 + 1..).prop_map(Parameter::Uint64),
        (-1e300..1e300).prop_map(|value: f64| Parameter::Double(value.trunc() + 0.5)),
        "\\PC{0,12}".prop_map(Parameter::String),
    ]
}

fn parameters() -> impl Strategy<Value = Parameters> {
    prop::collection::btree_map("p_\\PC{0,6}", parameter(), 0..3)
}

/// A tensor whose values JSON can express: text in BYTES, 0 and 1 in BOOL, nothing infinite.
fn tensor() -> impl Strategy<Value = NamedTensor> {
    let shape = prop::collection::vec(0usize..5, 0..4);
    (prop::sample::select(&DataType::ALL[..]), shape, any::<u64>(), "\\PC{0,9}", parameters()).prop_map(
        |(datatype, shape, seed, name, parameters)| {
            let elements: usize = shape.iter().product();
            let values = (0..elements as u64).map(|i| seed.wrapping_mul(i + 1).wrapping_add(i));
            let data: Vec<u8> = values.flat_map(|value| element(datatype, value)).collect();
            let tensor = Tensor::new(datatype, Shape::from_vec(shape), Bytes::from(data)).unwrap();
            NamedTensor { name, tensor, parameters }
        },
    )
}

fn element(datatype: DataType, value: u64) -> Vec<u8> {
    match datatype {
        DataType::Bool => vec![(value & 1) as u8],
        DataType::Fp16 | DataType::Bf16 => ((value as u16) & 0xbfff & 0xff7f).to_le_bytes().to_vec(),
        DataType::Fp32 => (value as i32 as f32 / 8.0).to_le_bytes().to_vec(),
        DataType::Fp64 => (value as i64 as f64 / 3.0).to_le_bytes().to_vec(),
        DataType::Bytes => {
            let text = value.to_string();
            [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
        }
        _ => value.to_le_bytes()[..datatype.size().unwrap()].to_vec(),
    }
}

fn request() -> impl Strategy<Value = InferRequest> {
    let output =
        ("\\PC{1,6}", parameters()).prop_map(|(name, parameters)| RequestedOutput { name, parameters });
    let outputs = prop::collection::vec(output, 0..3);
    ("\\PC{0,9}", parameters(), prop::collection::vec(tensor(), 0..4), outputs).prop_map(
        |(id, parameters, inputs, outputs)| InferRequest {
            model: ModelRef { name: "m".into(), version: Some("3".into()) },
            id,
            parameters,
            inputs,
            outputs,
        },
    )
}

fn response() -> impl Strategy<Value = InferResponse> {
    request().prop_map(|request| InferResponse {
        model_name: "m".into(),
        model_version: "3".into(),
        id: request.id,
        parameters: request.parameters,
        outputs: request.inputs,
    })
}

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
        let back = convert::request::decode(convert::request::encode(request.clone())).unwrap();
        prop_assert_eq!(back, request);
        let back = convert::response::decode(convert::response::encode(response.clone())).unwrap();
        prop_assert_eq!(back, response);
    }

    #[test]
    fn a_damaged_body_is_an_error_or_a_request_but_never_a_panic(
        request in request(), at in any::<prop::sample::Index>(), with in any::<u8>(), cut in any::<prop::sample::Index>(), lie in 0usize..400,
    ) {
        let body = rest::request::encode(&request, rest::request::Form::Binary).unwrap();
        let length = body.json_length();
        let mut bytes = body.into_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = with;
        let whole = Bytes::from(bytes);
        let part = whole.slice(..cut.index(whole.len()));
        for body in [whole, part] {
            for length in [length, None, Some(lie)] {
                let _ = rest::request::decode(request.model.clone(), length, body.clone());
                let _ = rest::response::decode(length, body.clone());
            }
        }
    }
}
