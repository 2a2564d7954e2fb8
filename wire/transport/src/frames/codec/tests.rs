//! Properties of the codec. Fuzzing (`tests/fuzz.rs`) covers that no input causes a panic.

#[path = "../../../../protocol/tests/support/values.rs"]
mod values;

use bytes::Bytes;
use proptest::prelude::*;

use self::values::{request, response};
use super::*;
use crate::frames::frame::LENGTH;

const LIMIT: usize = 1 << 20;

/// The frame as its receiver decodes it.
fn received(frame: &Frame) -> (Header, Bytes) {
    let whole = Bytes::from(frame.chunks.concat());
    let header = Header::from_bytes(whole.first_chunk().unwrap()).unwrap();
    assert_eq!(header.body as usize, whole.len() - LENGTH);
    (header, whole.slice(LENGTH..))
}

proptest! {
    #[test]
    fn requests_survive_the_wire(
        request in request(),
        id in any::<u64>(),
        micros in proptest::option::of(0..u64::MAX / 2),
        traceparent in proptest::option::of(".{0,60}"),
    ) {
        let envelope = Envelope { remaining: micros.map(Duration::from_micros), traceparent, share: None };
        let (header, body) = received(&encode_request(id, &request, &envelope, LIMIT).unwrap());
        prop_assert_eq!((header.kind, header.id), (Kind::Request, id));
        prop_assert_eq!(decode_request(&body), Ok((request, envelope)));
    }

    #[test]
    fn responses_survive_the_wire(response in response(), id in any::<u64>()) {
        let (header, body) = received(&encode_response(id, &response, LIMIT).unwrap());
        prop_assert_eq!((header.kind, header.id), (Kind::Response, id));
        prop_assert_eq!(decode_response(&body), Ok(response));
    }

    #[test]
    fn a_body_cut_anywhere_is_an_error(request in request(), at in any::<prop::sample::Index>()) {
        let (_, body) = received(&encode_request(1, &request, &Envelope::default(), LIMIT).unwrap());
        let cut = body.slice(..at.index(body.len()));
        prop_assert!(decode_request(&cut).is_err());
    }
}

#[test]
fn every_class_of_error_keeps_its_class_and_words() {
    for code in Code::ALL {
        let error = Error::Remote { code, message: format!("words about {code:?}") };
        let (header, body) = received(&encode_failure(9, &error, LIMIT).unwrap());
        assert_eq!((header.kind, header.id), (Kind::Failure, 9));
        assert_eq!(decode_failure(&body), Ok(error));
    }
    assert_eq!((Code::ALL[0] as u8, Code::ALL[10] as u8, code_of(12)), (1, 11, Code::Internal));
}

#[test]
fn an_error_too_long_for_a_frame_is_cut() {
    let error = Error::Internal { message: "é".repeat(500) };
    let (_, body) = received(&encode_failure(1, &error, 256).unwrap());
    assert!(body.len() <= 256);
    let Ok(Error::Remote { message, .. }) = decode_failure(&body) else { panic!("unreadable") };
    assert!(message.starts_with("ééé") && message.len() > 150, "{message}");
}

#[test]
fn long_message_of_a_server_is_cut() {
    let error = Error::Internal { message: "x".repeat(1 << 19) };
    let (_, body) = received(&encode_failure(1, &error, LIMIT).unwrap());
    assert!(body.len() > 1 << 19);
    let read = decode_failure(&body).unwrap().to_string();
    assert!(read.len() < 3000, "{} bytes", read.len());
}

#[test]
fn floats_of_a_large_tensor_are_read_in_place() {
    let values: Vec<f32> = (0..5000u16).map(f32::from).collect();
    let response = InferResponse {
        model_name: "odd name".into(),
        model_version: "1".into(),
        outputs: vec![NamedTensor::new("y", Tensor::from_f32([5000].as_slice(), &values).unwrap())],
        ..Default::default()
    };
    let (_, body) = received(&encode_response(1, &response, LIMIT).unwrap());
    let decoded = decode_response(&body).unwrap();
    let data = decoded.outputs[0].tensor.data();
    assert!(body.as_ptr_range().contains(&data.as_ptr()), "copied");
    assert_eq!(data.as_ptr() as usize % 8, body.as_ptr() as usize % 8);
    assert_eq!(decoded.outputs[0].tensor.as_f32().unwrap(), values);
}

#[test]
fn every_seed_of_the_fuzzer_decodes_as_the_kind_in_its_name() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/frames");
    let seeds: Vec<_> = std::fs::read_dir(folder).unwrap().map(|seed| seed.unwrap().path()).collect();
    for path in &seeds {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(survives(&std::fs::read(path).unwrap().into()), [name]);
    }
    assert!(!seeds.is_empty());
}
