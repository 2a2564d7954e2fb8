//! Decodes every seed of the fuzzer.
//!
//! A change to the codecs must not leave the fuzzer with invalid seeds only. `fuzz/seeds.py` rewrites the seeds.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use parm_protocol::grpc::convert;
use parm_protocol::grpc::inference::{ModelInferRequest, ModelInferResponse};
use parm_protocol::rest;
use parm_protocol::{Error, ModelRef};
use prost::Message;

fn each(target: &str, check: impl Fn(&str, Bytes)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        check(path.file_name().unwrap().to_str().unwrap(), fs::read(&path).unwrap().into());
        seen += 1;
    }
    assert!(seen > 0, "{} has no seeds", folder.display());
}

fn request(json: Option<usize>, body: Bytes) -> Result<usize, Error> {
    rest::request::decode(ModelRef::latest("m"), json, body).map(|(request, _)| request.inputs.len())
}

fn response(json: Option<usize>, body: Bytes) -> Result<usize, Error> {
    rest::response::decode(json, body).map(|response| response.outputs.len())
}

#[test]
fn every_json_seed_decodes() {
    each("rest_json", |name, body| match name {
        "response" => assert_eq!(response(None, body), Ok(14)),
        "request" => assert_eq!(request(None, body), Ok(14)),
        _ => assert!(request(None, body).is_ok_and(|inputs| inputs > 0), "{name}"),
    });
}

#[test]
fn every_binary_seed_decodes() {
    each("rest_binary", |name, data| match (data[0], name) {
        (0, _) => {
            let json = data.iter().skip(1).position(|byte| *byte == 0).unwrap();
            let body = Bytes::from([&data[1..=json], &data[json + 2..]].concat());
            let decode = if name == "response" { response } else { request };
            assert_eq!(decode(Some(json), body), Ok(14), "{name}");
        }
        (1, _) => {
            let json = u16::from_le_bytes([data[1], data[2]]).into();
            assert_eq!(request(Some(json), data.slice(3..)), Ok(2), "{name}");
        }
        (choice, _) => panic!("{name} begins with {choice}"),
    });
}

#[test]
fn every_grpc_seed_decodes() {
    each("grpc_convert", |name, data| {
        let tensors = if name.ends_with("typed") { 12 } else { 14 };
        if name.starts_with("request") {
            let message = ModelInferRequest::decode(data).unwrap();
            let request = convert::request_from_message(message).unwrap();
            assert_eq!((request.inputs.len(), request.outputs.len()), (tensors, 1), "{name}");
        } else {
            let response = convert::response_from_message(ModelInferResponse::decode(data).unwrap()).unwrap();
            assert_eq!((response.outputs.len(), response.parameters.len()), (tensors, 5), "{name}");
        }
    });
}
