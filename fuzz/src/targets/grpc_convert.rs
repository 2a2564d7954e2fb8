//! Any bytes as a gRPC message, converted to our types and back, and passed on over HTTP as a frontend does.

use bytes::Bytes;
use parm_protocol::bounds::Room;
use parm_protocol::grpc::inference::{ModelInferRequest, ModelInferResponse};
use parm_protocol::grpc::{convert, decode_bounded};
use prost::Message;

use super::trip::{json_is_readable, request_passes_on, rows_survive};

/// Runs the target.
pub fn run(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    if let Ok(message) = decode_bounded(body.clone(), Room::default()) {
        let plain = ModelInferRequest::decode(body.clone()).expect("the bound changes nothing within it");
        assert_eq!(message.encode_to_vec(), plain.encode_to_vec());
        request(message);
    }
    if let Ok(message) = ModelInferResponse::decode(body) {
        response(message);
    }
}

fn request(message: ModelInferRequest) {
    let Ok(request) = convert::request_from_message(message) else { return };
    let message = convert::request_to_message(request.clone()).encode_to_vec();
    let message = ModelInferRequest::decode(Bytes::from(message)).expect("what we write is a message");
    assert_eq!(convert::request_from_message(message).as_ref(), Ok(&request));
    rows_survive(&request.inputs);
    json_is_readable(&request);
    request_passes_on(request);
}

fn response(message: ModelInferResponse) {
    let Ok(response) = convert::response_from_message(message) else { return };
    let message = convert::response_to_message(response.clone()).encode_to_vec();
    let message = ModelInferResponse::decode(Bytes::from(message)).expect("what we write is a message");
    assert_eq!(convert::response_from_message(message).as_ref(), Ok(&response));
}
