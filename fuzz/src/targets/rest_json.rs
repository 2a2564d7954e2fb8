//! Any text as a JSON body of a request, a response, statistics or an error.

use bytes::Bytes;
use parm_protocol::Code;
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
    if let Ok(statistics) = rest::decode_statistics(data) {
        let back = rest::decode_statistics(&rest::encode_statistics(statistics.clone()));
        assert_eq!(back.as_ref(), Ok(&statistics));
    }
    let error = rest::decode_error(Code::Internal, data);
    assert_eq!(rest::decode_error(Code::Internal, &rest::encode_error(&error)), error);
}
