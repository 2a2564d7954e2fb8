//! Hostile model files and bundles: each is an error that says what is wrong, and never a panic.

use std::fs;
use std::path::Path;

use parm_parity_models::bundle::Manifest;
use parm_parity_models::onnx::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};
use parm_parity_models::onnx::rewrite::{Design, End, Weights, derive};
use parm_parity_models::onnx::{Builder, Dense, Limits, Model, Tensor, Value};
use prost::Message;

use crate::sample;

fn file(graph: GraphProto) -> ModelProto {
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    ModelProto { ir_version: 8, opset_import, graph: Some(graph), ..ModelProto::default() }
}

/// A tensor of four floats in an external file, with these entries.
fn external(entries: &[(&str, &str)]) -> TensorProto {
    let entry =
        |&(key, value): &(&str, &str)| StringStringEntryProto { key: key.into(), value: value.into() };
    TensorProto {
        name: "w".into(),
        data_type: 1,
        dims: vec![4],
        data_location: 1,
        external_data: entries.iter().map(entry).collect(),
        ..TensorProto::default()
    }
}

/// The error of a model with this tensor. Its folder has a file `data` of 16 bytes and the files that `fill` adds.
fn refusal(tensor: TensorProto, fill: impl FnOnce(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data"), [0; 16]).unwrap();
    fill(folder.path());
    let path = folder.path().join("model.onnx");
    let graph = GraphProto { initializer: vec![tensor], ..GraphProto::default() };
    fs::write(&path, file(graph).encode_to_vec()).unwrap();
    let read = Model::open(&path, &Limits::default()).and_then(|model| model.graph().map(|_| ()));
    read.err().map_or("it is accepted".into(), |error| error.to_string())
}

#[test]
fn external_weights_are_rejected_when_their_place_is_wrong() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("location", "../data")], "outside the model's folder"),
        (&[("location", "/etc/hostname")], "outside the model's folder"),
        (&[("location", "a/../../data")], "outside the model's folder"),
        (&[("location", "")], "outside the model's folder"),
        (&[], "outside the model's folder"),
        (&[("location", "nothing")], "cannot read"),
        (&[("location", ".")], "not a plain file"),
        (&[("location", "folder")], "not a plain file"),
        (&[("location", "endless")], "not a plain file"),
        (&[("location", "data"), ("offset", "-1")], "expected a number"),
        (&[("location", "data"), ("length", "1e3")], "expected a number"),
        (&[("location", "data"), ("offset", "18446744073709551615")], "which has 16"),
        (&[("location", "data"), ("offset", "8"), ("length", "18446744073709551615")], "which has 16"),
        (&[("location", "data"), ("length", "15")], "needs 16 bytes"),
        (&[("location", "data"), ("offset", "16")], "needs 16 bytes"),
    ];
    for (entries, words) in cases {
        let said = refusal(external(entries), |folder| {
            fs::create_dir(folder.join("folder")).unwrap();
            #[cfg(unix)]
            std::os::unix::fs::symlink("/dev/zero", folder.join("endless")).unwrap();
        });
        assert!(said.contains(words), "{entries:?}: {said}");
    }
}

#[test]
fn tensor_is_rejected_when_its_sizes_do_not_match() {
    let tensor = |dims: &[i64], data_type| TensorProto {
        name: "w".into(),
        data_type,
        dims: dims.to_vec(),
        raw_data: Some(vec![0; 16].into()),
        ..TensorProto::default()
    };
    for (dims, data_type, words) in [
        (&[5][..], 1, "needs 20 bytes"),
        (&[-4], 1, "negative dimension -4"),
        (&[i64::MAX, i64::MAX], 1, "overflows"),
        (&[1 << 40, 0, 1 << 40], 1, "overflows"),
        (&[4, 0], 1, "needs 0 bytes"),
        (&[4], 77, "unknown element type"),
        (&[5], 8, "needs 5 bytes"),
        (&[i64::MIN], 7, "negative dimension"),
    ] {
        let said = refusal(tensor(dims, data_type), |_| {});
        assert!(said.contains(words), "{dims:?} of {data_type}: {said}");
    }
}

#[cfg(unix)]
#[test]
fn model_is_rejected_when_its_file_has_no_end() {
    let error = Model::open(Path::new("/dev/zero"), &Limits::default()).unwrap_err().to_string();
    assert!(error.contains("not a plain file"), "{error}");
    let error = Manifest::read(Path::new("/dev/zero")).unwrap_err().to_string();
    assert!(error.contains("not a plain file"), "{error}");
}

#[test]
fn file_is_rejected_when_it_has_millions_of_parts() {
    // Empty nodes, attributes and dimensions: two bytes of the file each, and hundreds in memory.
    let node = [0x0a, 0];
    let said = |graph: Vec<u8>| {
        let mut bytes = vec![0x3a];
        prost::encoding::encode_varint(graph.len() as u64, &mut bytes);
        bytes.extend(graph);
        Model::from_bytes(bytes, &Limits::default()).err().map_or(String::new(), |error| error.to_string())
    };
    let many = "more than 4000000 nodes, names and other parts";
    assert!(said(node.repeat(5_000_000)).contains(many));
    let mut one = vec![0x0a];
    let attributes = [0x2a, 0].repeat(5_000_000);
    prost::encoding::encode_varint(attributes.len() as u64, &mut one);
    assert!(said([one, attributes].concat()).contains(many));
    assert_eq!(said(node.repeat(1000)), "");
}

#[test]
fn graphs_within_graphs_end_in_an_error() {
    // An attribute that holds a graph, which holds a node, which holds the attribute before.
    let mut inner: Vec<u8> = Vec::new();
    while inner.len() < 1 << 16 {
        for tag in [0x32, 0x2a, 0x0a] {
            let mut outer = vec![tag];
            prost::encoding::encode_varint(inner.len() as u64, &mut outer);
            outer.extend(&inner);
            inner = outer;
        }
    }
    let mut bytes = vec![0x3a];
    prost::encoding::encode_varint(inner.len() as u64, &mut bytes);
    bytes.extend(inner);
    let error =
        Model::from_bytes(bytes, &Limits::default()).map(|_| ()).expect_err("it is too deep").to_string();
    assert!(error.contains("invalid ONNX file"), "{error}");
}

#[test]
fn circle_is_found_when_it_goes_through_many_nodes() {
    const NODES: usize = 200_000;
    let name = |at: usize| format!("v{}", at % NODES);
    let node = |at: usize| NodeProto {
        op_type: "Relu".into(),
        input: vec![name(at)],
        output: vec![name(at + 1)],
        ..NodeProto::default()
    };
    let graph = GraphProto { node: (0..NODES).map(node).collect(), ..GraphProto::default() };
    let model = Model::from_bytes(file(graph).encode_to_vec(), &Limits::default()).unwrap();
    let findings = model.inspect().findings;
    let circle = findings.iter().find(|finding| finding.message.contains("in a cycle")).unwrap();
    assert_eq!(circle.message.matches(" -> ").count(), NODES - 1);
}

#[test]
fn layer_is_rejected_when_no_file_can_hold_it() {
    for (inputs, outputs) in [(1 << 20, 1 << 20), (usize::MAX, 2), (usize::MAX, usize::MAX)] {
        let (mut graph, x) = Builder::reading("wide", 1, Value::batch_of_f32("x", &[4]));
        let error = graph.dense("y", &x, Dense { inputs, outputs }).unwrap_err().to_string();
        assert!(error.contains("weight y.weight") && error.contains("the limit is 2147483648"), "{error}");
    }
}

/// The structure lies between the weights: damaged weights only change numbers.
#[test]
fn damaged_file_is_an_error_and_never_a_panic() {
    let model = sample::tiny();
    let bytes = model.bytes();
    let weights: Vec<Tensor> = model.graph().unwrap().initializers.into_values().collect();
    // Calls everything on a file. Any result is accepted, but no panic.
    let use_fully = |bytes: Vec<u8>| {
        let Ok(model) = Model::from_bytes(bytes, &Limits::default()) else { return };
        let slots = 2.try_into().unwrap();
        for start in [Weights::Deployed, Weights::Scratch { seed: 1 }] {
            for end in [End::AsDeployed, End::Raw] {
                let _ = derive(&model, &Design { stem: slots, head: slots, end, start });
                let _ = derive(&model, &Design::single(end, start));
            }
        }
        let _ = (model.graph(), model.inspect().to_string(), model.with_weights(&weights));
    };
    for at in 0..bytes.len() {
        if at % 5 == 0 {
            use_fully(bytes[..at].to_vec());
        }
        for damage in [1, 0x08, 0x80] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= damage;
            use_fully(damaged);
        }
    }
}
