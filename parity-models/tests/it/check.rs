//! Findings of the check of invalid files.

use parm_parity_models::onnx::proto::{ModelProto, NodeProto, StringStringEntryProto, ValueInfoProto};
use parm_parity_models::onnx::{Finding, Limits, Model, Tensor};
use prost::Message;

use crate::sample;

/// Breaks a valid model and compares the findings.
fn check(breakage: impl FnOnce(&mut ModelProto), expect: &[Finding]) {
    let mut proto = sample::resnet().proto().clone();
    breakage(&mut proto);
    let model = Model::from_bytes(proto.encode_to_vec(), &Limits::default()).unwrap();
    let report = model.inspect();
    assert_eq!(report.findings, expect);
    assert_eq!(report.is_sound(), expect.iter().all(|finding| !finding.is_fatal()));
}

fn node<'a>(proto: &'a mut ModelProto, name: &str) -> &'a mut NodeProto {
    proto.graph.as_mut().unwrap().node.iter_mut().find(|node| node.name == name).unwrap()
}

#[test]
fn graphs_of_the_builder_are_sound() {
    for model in [sample::mlp(), sample::lenet(), sample::resnet()] {
        assert_eq!(model.inspect().findings, []);
    }
}

#[test]
fn value_without_a_producer_is_found() {
    let dangling = Finding::Dangling { node: "Relu 'relu1'".into(), value: "gone".into() };
    check(|proto| node(proto, "relu1").input[0] = "gone".into(), &[dangling]);
    let output = Finding::DanglingOutput { output: "other".into() };
    check(|proto| proto.graph.as_mut().unwrap().output[0].name = "other".into(), &[output]);
}

#[test]
fn value_with_two_producers_is_found() {
    let duplicate = || Finding::Duplicate { value: "bn1".into() };
    check(|proto| node(proto, "flatten").output.push("bn1".into()), &[duplicate()]);
    let weight = Finding::Duplicate { value: "conv1.weight".into() };
    let again = |proto: &mut ModelProto| {
        let graph = proto.graph.as_mut().unwrap();
        graph.initializer.push(graph.initializer[0].clone());
    };
    check(again, &[weight]);
}

#[test]
fn node_before_its_input_differs_from_a_cycle() {
    let late = Finding::OutOfOrder { node: "BatchNormalization 'bn1'".into(), value: "conv1".into() };
    check(|proto| proto.graph.as_mut().unwrap().node.swap(0, 1), &[late]);
    let nodes = ["Conv 'conv2'", "BatchNormalization 'bn2'", "Add 'add'", "Relu 'relu2'"];
    let circle = Finding::Cycle { nodes: nodes.map(str::to_owned).to_vec() };
    check(|proto| node(proto, "conv2").input[0] = "relu2".into(), &[circle]);
}

#[test]
fn unused_constants_and_inputs_are_notes() {
    let unused = Finding::UnusedInitializer { tensor: "spare".into(), bytes: 16 };
    let spare = Tensor::from_i64("spare", &[2], &[1, 2]).unwrap().to_proto();
    check(|proto| proto.graph.as_mut().unwrap().initializer.push(spare), &[unused]);
    let input = Finding::UnusedInput { input: "extra".into() };
    let extra = ValueInfoProto { name: "extra".into(), ..Default::default() };
    let undeclared = Finding::UndeclaredShape { value: "extra".into() };
    check(|proto| proto.graph.as_mut().unwrap().input.push(extra), &[undeclared, input]);
}

#[test]
fn operator_set_without_a_version_is_found() {
    let missing = Finding::NoOpset { domain: "com.example".into(), node: "com.example.Relu 'relu1'".into() };
    check(|proto| node(proto, "relu1").domain = "com.example".into(), &[missing]);
    check(|proto| node(proto, "relu1").domain = "ai.onnx".into(), &[]);
}

#[test]
fn weights_in_a_missing_file_are_found() {
    let outside = |proto: &mut ModelProto| {
        let weight = &mut proto.graph.as_mut().unwrap().initializer[0];
        weight.raw_data = None;
        weight.data_location = 1;
        weight.external_data = vec![StringStringEntryProto { key: "location".into(), value: "w.bin".into() }];
    };
    let message =
        "tensor 'conv1.weight' is in external file 'w.bin', but the model was not read from a folder";
    let unreadable = Finding::Unreadable { tensor: "conv1.weight".into(), message: message.into() };
    check(outside, &[unreadable]);
}
