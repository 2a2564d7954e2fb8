//! Reading a file: what its check and its report find, and new weights, which change only their own bytes.

use bytes::Bytes;
use parm_parity_models::onnx::proto::{
    GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto, ValueInfoProto,
};
use parm_parity_models::onnx::{Attribute, Builder, Defect, Limits, Model, Tensor, Value};
use prost::Message;

use crate::sample;

fn graph(proto: &mut ModelProto) -> &mut GraphProto {
    proto.graph.as_mut().unwrap()
}

fn node<'a>(proto: &'a mut ModelProto, name: &str) -> &'a mut NodeProto {
    graph(proto).node.iter_mut().find(|node| node.name == name).unwrap()
}

fn moved_out(proto: &mut ModelProto) {
    let weight = &mut graph(proto).initializer[0];
    weight.raw_data = None;
    weight.data_location = 1;
    weight.external_data = vec![StringStringEntryProto { key: "location".into(), value: "w.bin".into() }];
}

#[test]
fn graphs_of_the_builder_are_sound() {
    for model in [sample::mlp(), sample::lenet(), sample::resnet()] {
        assert_eq!(model.inspect().findings, []);
    }
}

#[test]
fn broken_graph_is_reported_with_its_nodes_and_values() {
    type Breakage = fn(&mut ModelProto);
    let fatal: [(Breakage, &str); 9] = [
        (|p| node(p, "relu1").input[0] = "gone".into(), "Relu 'relu1' reads 'gone', which no node produces"),
        (|p| graph(p).output[0].name = "other".into(), "no node produces output 'other'"),
        (|p| node(p, "flatten").output.push("bn1".into()), "two nodes produce 'bn1'"),
        (
            |p| {
                let again = graph(p).initializer[0].clone();
                graph(p).initializer.push(again);
            },
            "two nodes produce 'conv1.weight'",
        ),
        (
            |p| graph(p).node.swap(0, 1),
            "BatchNormalization 'bn1' precedes the node that produces its input 'conv1'",
        ),
        (
            |p| node(p, "conv2").input[0] = "relu2".into(),
            "nodes depend on each other in a cycle: Conv 'conv2' -> BatchNormalization 'bn2' -> Add 'add' -> Relu 'relu2'",
        ),
        (
            |p| node(p, "relu1").domain = "com.example".into(),
            "com.example.Relu 'relu1' uses operator set 'com.example', whose version the file does not declare",
        ),
        (
            moved_out,
            "cannot read constant 'conv1.weight': tensor 'conv1.weight' is in external file 'w.bin', but the model was not read \
             from a folder",
        ),
        (|p| node(p, "relu1").domain = "ai.onnx".into(), ""),
    ];
    let findings = |breakage: Breakage| {
        let mut proto = sample::resnet().proto().clone();
        breakage(&mut proto);
        let report = open(proto.encode_to_vec()).inspect();
        let said: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        (said.join("; "), report.is_sound())
    };
    for (breakage, said) in fatal {
        assert_eq!(findings(breakage), (said.to_owned(), said.is_empty()));
    }
    let unused = |proto: &mut ModelProto| {
        graph(proto).initializer.push(Tensor::from_i64("spare", &[2], &[1, 2]).unwrap().to_proto());
        graph(proto).input.push(ValueInfoProto { name: "extra".into(), ..Default::default() });
    };
    let said = "the rank of 'extra' is not declared; input 'extra' is never used; initialiser 'spare' (16 bytes) is never used";
    assert_eq!(findings(unused), (said.to_owned(), true), "remarks");
}

#[test]
fn report_counts_operators_parameters_and_bytes() {
    let report = sample::lenet().inspect();
    let operators: Vec<(&str, usize)> = report.operators.iter().map(|(op, n)| (op.as_str(), *n)).collect();
    assert_eq!(
        operators,
        [("Conv", 2), ("Flatten", 1), ("Gemm", 2), ("MaxPool", 2), ("Relu", 3), ("Softmax", 1)]
    );
    let parameters = (4 * 25 + 4) + (8 * 4 * 9 + 8) + (32 * 16 + 16) + (16 * 5 + 5);
    assert_eq!(report.parameters, parameters);
    assert_eq!(report.weights["FP32"], 4 * parameters);
    assert_eq!(report.opsets["ai.onnx"], 17);
    assert_eq!(report.inputs[0].protocol_shape(), Some(vec![-1, 1, 12, 12]));
}

#[test]
fn report_has_a_text_and_a_json_form() {
    let report = sample::mlp().inspect();
    let text = report.to_string();
    assert!(text.contains("input       input FP32[batch, 1, 6, 6]\n"), "{text}");
    assert!(text.contains("operators   Gemm 2, Flatten 1, Relu 1\n"), "{text}");
    assert!(text.contains("checks      passed\n"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["inputs"][0]["shape"], serde_json::json!(["batch", 1, 6, 6]));
    assert_eq!(json["inputs"][0]["datatype"], "FP32");
}

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
    let (mut graph, input) = Builder::reading("constants", sample::SEED, Value::batch_of_f32("x", &[2]));
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
    let error = model.with_weights(&[unknown]).unwrap_err().to_string();
    assert!(error.starts_with("unknown weight 'nobody'"), "{error}");
    let short = Tensor::from_f32("fc1.bias", &[2], &[0.0, 0.0]).unwrap();
    let error = model.with_weights(&[short]).unwrap_err().to_string();
    assert!(error.starts_with("weight 'fc1.bias' is FP32 [12] in the file, but FP32 [2]"), "{error}");
}

#[test]
fn truncated_file_is_malformed() {
    let bytes = sample::mlp().bytes().clone();
    let cut = Model::from_bytes(bytes.slice(..bytes.len() - 1), &Limits::default());
    assert!(matches!(cut, Err(Defect::Malformed { .. })));
    assert!(matches!(Model::from_bytes(Vec::new(), &Limits::default()), Err(Defect::NoGraph)));
}
