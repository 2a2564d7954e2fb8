//! Requests and responses for tests of codecs, of values that JSON can express.

use bytes::Bytes;
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

/// A tensor, small or of about the size from which on frames do not copy it.
fn tensor() -> impl Strategy<Value = NamedTensor> {
    let small = prop::collection::vec(0usize..5, 0..4);
    let shape = prop_oneof![9 => small, 1 => (2040usize..2060).prop_map(|elements| vec![elements])];
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

/// Text in BYTES, 0 and 1 in BOOL, nothing infinite.
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

pub(crate) fn request() -> impl Strategy<Value = InferRequest> {
    let output =
        ("\\PC{1,6}", parameters()).prop_map(|(name, parameters)| RequestedOutput { name, parameters });
    let outputs = prop::collection::vec(output, 0..3);
    let model = ("\\PC{1,9}", prop::option::of("[0-9]{1,3}"));
    let model = model.prop_map(|(name, version)| ModelRef { name, version });
    (model, "\\PC{0,9}", parameters(), prop::collection::vec(tensor(), 0..4), outputs).prop_map(
        |(model, id, parameters, inputs, outputs)| InferRequest { model, id, parameters, inputs, outputs },
    )
}

pub(crate) fn response() -> impl Strategy<Value = InferResponse> {
    request().prop_map(|request| InferResponse {
        model_name: request.model.name,
        model_version: request.model.version.unwrap_or_default(),
        id: request.id,
        parameters: request.parameters,
        outputs: request.inputs,
    })
}
