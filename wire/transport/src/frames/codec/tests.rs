//! Properties of the codec: values survive the wire, and no input causes a panic.

use bytes::Bytes;
use parm_protocol::{Parameter, Parameters};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::frames::header::{Header, LENGTH};

const LIMIT: usize = 1 << 20;

fn parameters() -> impl Strategy<Value = Parameters> {
    let parameter = prop_oneof![
        any::<bool>().prop_map(Parameter::Bool),
        any::<i64>().prop_map(Parameter::Int64),
        any::<u64>().prop_map(Parameter::Uint64),
        (-1e300..1e300).prop_map(Parameter::Double),
        ".*".prop_map(Parameter::String),
    ];
    btree_map(".{0,6}", parameter, 0..3)
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let numbers = (0usize..13, vec(0usize..7, 0..5)).prop_flat_map(|(datatype, shape)| {
        let datatype = DataType::ALL[datatype];
        let bytes = shape.iter().product::<usize>() * datatype.size().unwrap_or(1);
        let data = vec(any::<u8>(), bytes);
        data.prop_map(move |data| Tensor::new(datatype, shape.as_slice(), data.into()).unwrap())
    });
    let strings = vec(vec(any::<u8>(), 0..9), 0..5).prop_map(|strings| {
        let data =
            strings.iter().flat_map(|s| (s.len() as u32).to_le_bytes().into_iter().chain(s.iter().copied()));
        Tensor::new(DataType::Bytes, [strings.len()].as_slice(), data.collect::<Vec<u8>>().into()).unwrap()
    });
    let large = (8190usize..8200).prop_map(|length| {
        Tensor::new(DataType::Uint8, [length].as_slice(), Bytes::from(vec![7; length])).unwrap()
    });
    prop_oneof![8 => numbers, 2 => strings, 1 => large]
}

fn tensors() -> impl Strategy<Value = Vec<NamedTensor>> {
    let named = (".{0,9}", tensor(), parameters());
    vec(named.prop_map(|(name, tensor, parameters)| NamedTensor { name, tensor, parameters }), 0..4)
}

fn request() -> impl Strategy<Value = InferRequest> {
    let model =
        (".{1,9}", proptest::option::of(".{0,3}")).prop_map(|(name, version)| ModelRef { name, version });
    let output = (".{0,9}", parameters()).prop_map(|(name, parameters)| RequestedOutput { name, parameters });
    (model, ".{0,9}", parameters(), tensors(), vec(output, 0..3)).prop_map(
        |(model, id, parameters, inputs, outputs)| InferRequest { model, id, parameters, inputs, outputs },
    )
}

fn response() -> impl Strategy<Value = InferResponse> {
    (".{0,9}", ".{0,3}", ".{0,9}", parameters(), tensors()).prop_map(
        |(model_name, model_version, id, parameters, outputs)| InferResponse {
            model_name,
            model_version,
            id,
            parameters,
            outputs,
        },
    )
}

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

    #[test]
    fn altered_bodies_never_panic(
        request in request(),
        lies in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (_, body) = received(&encode_request(1, &request, &Envelope::default(), LIMIT).unwrap());
        let mut body = body.to_vec();
        for (at, lie) in lies {
            let at = at.index(body.len());
            body[at] = lie;
        }
        let body = Bytes::from(body);
        // Some changes are harmless (a letter of a name); an accepted request must still fit the bytes.
        if let Ok((request, _)) = decode_request(&body) {
            let size: usize = request.inputs.iter().map(|input| input.tensor.data().len()).sum();
            prop_assert!(size <= body.len());
        }
        let _ = (decode_response(&body), decode_failure(&body));
    }

    #[test]
    fn noise_never_panics(noise in vec(any::<u8>(), 0..200)) {
        let noise = Bytes::from(noise);
        let _ = (decode_request(&noise), decode_response(&noise), decode_failure(&noise));
    }
}

#[test]
fn every_class_of_error_keeps_its_class_and_words() {
    let codes = [
        Code::NotFound,
        Code::InvalidArgument,
        Code::TooLarge,
        Code::Overloaded,
        Code::DeadlineExceeded,
        Code::Unavailable,
        Code::Unauthenticated,
        Code::PermissionDenied,
        Code::Unimplemented,
        Code::Internal,
        Code::TooManyRequests,
    ];
    for code in codes {
        let error = Error::Remote { code, message: format!("words about {code:?}") };
        let (header, body) = received(&encode_failure(9, &error, LIMIT).unwrap());
        assert_eq!((header.kind, header.id), (Kind::Failure, 9));
        assert_eq!(decode_failure(&body), Ok(error));
    }
}

#[test]
fn every_datatype_keeps_its_number() {
    for datatype in DataType::ALL {
        assert_eq!(datatype_of(byte_of_datatype(datatype)), Ok(datatype));
    }
    assert!(datatype_of(14).is_err());
}

#[test]
fn body_over_the_limit_is_rejected_by_its_sender() {
    let tensor = Tensor::from_f32([1000].as_slice(), &[0.5; 1000]).unwrap();
    let request = InferRequest {
        model: ModelRef::latest("m"),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("x", tensor)],
        outputs: vec![],
    };
    let refused = encode_request(1, &request, &Envelope::default(), 4000).unwrap_err();
    assert_eq!(refused, Error::BodyTooLarge { limit: 4000 });
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
fn parts_beyond_the_bounds_are_refused() {
    use parm_protocol::bounds::{MOST_DIMENSIONS, MOST_PARAMETERS, MOST_TENSORS, MOST_TEXT_BYTES};
    let small = || InferRequest {
        model: ModelRef::latest("m"),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![],
        outputs: vec![],
    };
    let scalar = |shape: Shape| Tensor::new(DataType::Uint8, shape, Bytes::from_static(&[1])).unwrap();
    let input = || NamedTensor::new("", scalar(Shape::new()));
    let output = || RequestedOutput { name: String::new(), parameters: Parameters::new() };
    let parameters = |count: usize| -> Parameters {
        (0..count).map(|number| (number.to_string(), Parameter::Bool(true))).collect()
    };
    let read = |request: &InferRequest| {
        let frame = encode_request(1, request, &Envelope::default(), 4 << 20).unwrap();
        decode_request(&received(&frame).1).map(|(request, _)| request)
    };
    let most = InferRequest {
        id: "i".repeat(MOST_TEXT_BYTES / 2),
        parameters: parameters(MOST_PARAMETERS),
        inputs: vec![NamedTensor::new("", scalar(Shape::from_elem(1, MOST_DIMENSIONS))); MOST_TENSORS],
        outputs: vec![output(); MOST_TENSORS],
        ..small()
    };
    assert_eq!(read(&most), Ok(most));
    let half = NamedTensor { parameters: parameters(MOST_PARAMETERS / 2), ..input() };
    for (request, words) in [
        (InferRequest { outputs: vec![output(); MOST_TENSORS + 1], ..small() }, "4096 outputs"),
        (InferRequest { inputs: vec![input(); MOST_TENSORS + 1], ..small() }, "4096 tensors"),
        (InferRequest { inputs: vec![half; 3], ..small() }, "1024 parameters"),
        (InferRequest { id: "i".repeat(MOST_TEXT_BYTES + 1), ..small() }, "bytes of names"),
        (
            InferRequest {
                inputs: vec![NamedTensor::new("", scalar(Shape::from_elem(1, MOST_DIMENSIONS + 1)))],
                ..small()
            },
            "64 dimensions",
        ),
    ] {
        let error = read(&request).unwrap_err().to_string();
        assert!(error.contains(words), "{error} lacks {words}");
    }
}
