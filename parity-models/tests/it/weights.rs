//! New weights change only their own bytes of a file.

use bytes::Bytes;
use parm_parity_models::onnx::proto::{StringStringEntryProto, TensorProto};
use parm_parity_models::onnx::{Attribute, Builder, Defect, Limits, Model, Tensor, Value};
use prost::Message;

use crate::sample;

fn open(bytes: impl Into<Bytes>) -> Model {
    Model::from_bytes(bytes, &Limits::default()).unwrap()
}

fn scaled(tensor: &Tensor, factor: f32) -> Tensor {
    let values: Vec<f32> = tensor.to_f32().unwrap().iter().map(|value| value * factor).collect();
    tensor.with_f32(&values).unwrap()
}

#[test]
fn equal_weights_give_an_equal_file() {
    let model = sample::resnet();
    let weights: Vec<Tensor> = model.graph().unwrap().initializers.into_values().collect();
    assert_eq!(model.with_weights(&weights).unwrap(), model.bytes());
}

#[test]
fn new_weights_change_only_their_own_bytes() {
    let model = sample::resnet();
    let graph = model.graph().unwrap();
    let weight = scaled(&graph.initializers["conv2.weight"], 2.0);
    let changed = model.with_weights(std::slice::from_ref(&weight)).unwrap();
    let differing: Vec<usize> = (0..changed.len()).filter(|&at| changed[at] != model.bytes()[at]).collect();
    assert_eq!(changed.len(), model.bytes().len());
    assert!(differing.last().unwrap() - differing[0] < weight.data().len());
    let mut expect = graph;
    expect.initializers.insert("conv2.weight".into(), weight);
    assert_eq!(open(changed).graph().unwrap(), expect);
}

#[test]
fn weights_in_typed_fields_and_nodes_are_replaced() {
    let mut graph = Builder::new("constants", sample::SEED);
    let input = graph.input(Value::batch_of_f32("x", &[2]));
    let factor = Tensor::from_f32("", &[2], &[2.0, 3.0]).unwrap();
    let factor = graph.node_with("Constant", "factor", &[], [("value", Attribute::Tensor(factor))]);
    let scaled = graph.node("Mul", "scaled", &[&input, &factor]);
    let offset = graph.constant(Tensor::from_f32("offset", &[2], &[0.5, 0.25]).unwrap());
    graph.node("Add", "y", &[&scaled, &offset]);
    graph.output(Value::batch_of_f32("y", &[2]));
    let mut proto = graph.build().unwrap().proto().clone();
    let offset = &mut proto.graph.as_mut().unwrap().initializer[0];
    (offset.raw_data, offset.float_data) = (None, vec![0.5, 0.25]);

    let new = ["factor", "offset"].map(|name| Tensor::from_f32(name, &[2], &[7.0, 8.0]).unwrap());
    let changed = open(open(proto.encode_to_vec()).with_weights(&new).unwrap()).graph().unwrap();
    for name in ["factor", "offset"] {
        assert_eq!(changed.constant(name).unwrap().unwrap().to_f32().unwrap(), [7.0, 8.0], "{name}");
    }
}

#[test]
fn external_weights_move_into_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let original = sample::mlp();
    let mut proto = original.proto().clone();
    let mut data = vec![0u8; 64];
    for weight in &mut proto.graph.as_mut().unwrap().initializer {
        move_out(weight, &mut data);
    }
    std::fs::write(folder.path().join("weights.bin"), &data).unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, proto.encode_to_vec()).unwrap();

    let limits = Limits { external_bytes: data.len() as u64, ..Limits::default() };
    let model = Model::open(&path, &limits).unwrap();
    assert_eq!(model.graph().unwrap(), original.graph().unwrap());
    assert_eq!(open(model.with_weights(&[]).unwrap()).graph().unwrap(), original.graph().unwrap());

    let tight = Limits { external_bytes: data.len() as u64 - 1, ..Limits::default() };
    let error = Model::open(&path, &tight).unwrap().graph().unwrap_err();
    assert!(matches!(error, Defect::TooLarge { actual, limit, .. } if actual == limit + 1), "{error}");
}

fn move_out(weight: &mut TensorProto, data: &mut Vec<u8>) {
    let raw = weight.raw_data.take().unwrap();
    let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
    weight.data_location = 1;
    weight.external_data = vec![
        entry("location", "weights.bin".into()),
        entry("offset", data.len().to_string()),
        entry("length", raw.len().to_string()),
    ];
    data.extend_from_slice(&raw);
}

#[test]
fn weights_of_another_shape_are_rejected() {
    let model = sample::mlp();
    let unknown = Tensor::from_f32("nobody", &[1], &[0.0]).unwrap();
    assert_eq!(model.with_weights(&[unknown]), Err(Defect::UnknownWeight { tensor: "nobody".into() }));
    let short = Tensor::from_f32("fc1.bias", &[2], &[0.0, 0.0]).unwrap();
    let error = model.with_weights(&[short]).unwrap_err();
    assert!(matches!(error, Defect::WeightMismatch { ref expected, .. } if *expected == [12]), "{error}");
}
