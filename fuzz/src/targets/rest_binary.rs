//! Any bytes as a body of the binary tensor extension.
//!
//! The first byte chooses the end of the JSON. It is at the first NUL byte, which JSON cannot contain: then a changed
//! JSON leaves the split right, and the fuzzer reaches the tensors. Or the next two bytes give it, which makes the header
//! wrong.

use bytes::Bytes;
use parm_protocol::rest::{self, Wanted, request::Form};

use super::trip::{json_is_readable, model, request_survives, response_survives, rows_survive};

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    if choice % 2 == 0 {
        let json = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let blobs = rest.get(json + 1..).unwrap_or_default();
        return split_body(json, Bytes::from([&rest[..json], blobs].concat()));
    }
    let Some((length, body)) = rest.split_first_chunk() else { return };
    split_body(u16::from_le_bytes(*length).into(), Bytes::copy_from_slice(body));
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
