//! Any text as a JSON body of a request or a response.

use bytes::Bytes;
use parm_protocol::rest::{self, Wanted, request::Form};

use super::trip::{model, request_survives, response_survives, rows_survive};

/// Runs the target.
pub fn run(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    if let Ok((request, _)) = rest::request::decode(model(), None, body.clone()) {
        request_survives(&request, Form::Json);
        request_survives(&request, Form::Binary);
        rows_survive(&request.inputs);
    }
    if let Ok(response) = rest::response::decode(None, body) {
        response_survives(&response, &Wanted::JSON);
        response_survives(&response, &Wanted::BINARY);
    }
}
