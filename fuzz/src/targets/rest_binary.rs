//! Any bytes as a body of the binary tensor extension.
//!
//! The first byte chooses the end of the JSON. It is at the first NUL byte, which JSON cannot contain: then a changed
//! JSON leaves the split right, and the fuzzer reaches the tensors. Or the next two bytes give it, which makes the header
//! wrong. Or there is none, for a body that is one raw tensor, preceded by the metadata that it is checked against.

use bytes::Bytes;
use parm_protocol::rest::{self, Wanted, request::Form};
use parm_protocol::{DataType, TensorMetadata};

use super::trip::{json_is_readable, model, request_survives, response_survives, rows_survive};

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    match choice % 3 {
        0 => {
            let json = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
            let blobs = rest.get(json + 1..).unwrap_or_default();
            split_body(json, Bytes::from([&rest[..json], blobs].concat()));
        }
        1 => {
            let Some((length, body)) = rest.split_first_chunk() else { return };
            split_body(u16::from_le_bytes(*length).into(), Bytes::copy_from_slice(body));
        }
        _ => raw_body(rest),
    }
}

fn split_body(json: usize, body: Bytes) {
    if let Ok((request, _)) = rest::request::decode(model(), Some(json), body.clone()) {
        request_survives(&request, Form::Binary);
        json_is_readable(&request);
        rows_survive(&request.inputs);
    }
    if let Ok(response) = rest::response::decode(Some(json), body) {
        response_survives(&response, &Wanted::BINARY);
    }
}

/// A datatype, the number of dimensions, the dimensions, and the tensor in the remaining bytes.
fn raw_body(data: &[u8]) {
    let [datatype, rank, rest @ ..] = data else { return };
    let Some((dims, body)) = rest.split_at_checked(usize::from(rank % 6)) else { return };
    let datatype = DataType::ALL[usize::from(*datatype) % DataType::ALL.len()];
    let shape: Vec<i64> = dims.iter().map(|&byte| dimension(byte)).collect();
    let input = TensorMetadata { name: "x".into(), datatype: datatype.to_string(), shape };
    let decoded = rest::request::decode_raw(model(), &input, Bytes::copy_from_slice(body));
    let Ok((request, wanted)) = decoded else { return };
    assert_eq!(wanted, Wanted::JSON);
    let tensor = &request.inputs[0].tensor;
    let values = if datatype == DataType::Bytes { &tensor.data()[4..] } else { &tensor.data()[..] };
    assert_eq!(values, body, "the body is the tensor");
    assert_eq!(tensor.shape().len(), input.shape.len());
    let kept = |(&dim, &declared): (&usize, &i64)| declared < 0 || usize::try_from(declared) == Ok(dim);
    let free = datatype == DataType::Bytes;
    assert!(free || tensor.shape().iter().zip(&input.shape).all(kept), "a declared size is kept");
    request_survives(&request, Form::Binary);
    json_is_readable(&request);
}

/// Returns small sizes, open ones, and some whose product overflows.
fn dimension(byte: u8) -> i64 {
    match byte as i8 {
        i8::MIN => i64::MIN,
        i8::MAX => i64::MAX,
        126 => 1 << 33,
        small => small.into(),
    }
}
