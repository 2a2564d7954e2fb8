//! Engines with a real model.

use std::path::{Path, PathBuf};

use parm_backend::EngineConfig;
use parm_backend::engine::{Model, by_name, compare};
use parm_parity_models::onnx::proto::StringStringEntryProto;
use parm_parity_models::onnx::{Attribute, Builder, DataType as Kind, Dim, Tensor as Constant, Value};
use parm_protocol::{DataType, Tensor};
use prost::Message;

fn load(engine: &str, path: &Path) -> Result<Box<dyn Model>, parm_backend::Error> {
    let config = EngineConfig::default();
    by_name(engine, &config).unwrap().load(path, &config)
}

/// What the comparison with other ways to run the file says, on tract.
fn compared(path: &Path) -> Result<(), parm_backend::Error> {
    let config = EngineConfig::default();
    compare(&*by_name("tract", &config).unwrap(), &mut *load("tract", path).unwrap(), path, &config)
}

/// Whether ORT_DYLIB_PATH names a library: other machines have no other engine to test.
fn has_onnx_runtime() -> bool {
    #[allow(clippy::disallowed_methods)]
    std::env::var_os("ORT_DYLIB_PATH").is_some()
}

fn magika_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/magika/1/model.onnx")
}

fn magika(engine: &str) -> Box<dyn Model> {
    load(engine, &magika_file()).unwrap()
}

/// Rows of repeated text, the kind of input that the model classifies.
fn rows(texts: &[&str]) -> Tensor {
    let row =
        |text: &str| text.bytes().cycle().take(2048).flat_map(|byte| i32::from(byte).to_le_bytes()).collect();
    let data: Vec<Vec<u8>> = texts.iter().map(|text| row(text)).collect();
    Tensor::new(DataType::Int32, [texts.len(), 2048].as_slice(), data.concat().into()).unwrap()
}

fn run(model: &mut dyn Model, input: &Tensor) -> Vec<f32> {
    model.run(std::slice::from_ref(input)).unwrap()[0].as_f32().unwrap().into_owned()
}

fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4)
}

const TEXTS: [&str; 3] = ["fn main() {}\n", "<html><body>", "import os\nprint(1)\n"];

#[test]
fn batch_gives_each_row_its_own_answer() {
    let mut model = magika("tract");
    assert!(model.signature().is_batched());
    let together = run(&mut *model, &rows(&TEXTS));
    let alone: Vec<f32> = TEXTS.iter().flat_map(|text| run(&mut *model, &rows(&[text]))).collect();
    assert!(close(&together, &alone));
    let sum: f32 = alone[..214].iter().sum();
    assert!((sum - 1.0).abs() < 1e-4, "class probabilities must add up to 1, not {sum}");
}

#[test]
fn plan_for_one_shape_agrees_with_the_general_one() {
    let (mut general, mut fixed) = (magika("tract"), magika("tract"));
    let input = rows(&TEXTS[..2]);
    fixed.prepare(&[input.shape().into()]).unwrap();
    assert!(close(&run(&mut *general, &input), &run(&mut *fixed, &input)));
    let mut replica = fixed.replica().unwrap();
    assert!(close(&run(&mut *replica, &input), &run(&mut *fixed, &input)));
}

#[test]
fn tract_and_onnx_runtime_agree() {
    if !has_onnx_runtime() {
        return;
    }
    let input = rows(&TEXTS);
    assert!(close(&run(&mut *magika("tract"), &input), &run(&mut *magika("ort"), &input)));
}

/// tract's graph optimisation makes a table of 256 results of a chain from `DequantizeLinear` to `QuantizeLinear`. A
/// softmax in it, as in 8-bit files of transformers, then normalises over the table in place of its row.
#[test]
fn model_is_refused_when_optimisation_changes_its_answers() {
    let mut builder = Builder::new("between", 1).opset(17);
    let x = builder.input(Value::batch_of_f32("x", &[8]));
    let mut scales = |name: &str, scale: f32, zero: u8| {
        let zero = Constant::new(&format!("{name}.zero"), Kind::Uint8, &[], vec![zero].into()).unwrap();
        let scale = Constant::from_f32(&format!("{name}.scale"), &[], &[scale]).unwrap();
        [builder.constant(scale), builder.constant(zero)]
    };
    let ([scale, zero], [fine, none]) = (scales("in", 0.05, 128), scales("out", 1.0 / 16.0, 255));
    let coarse = builder.node("QuantizeLinear", "coarse", &[&x, &scale, &zero]);
    let wide = builder.node("DequantizeLinear", "wide", &[&coarse, &scale, &zero]);
    builder.node("LogSoftmax", "between", &[&wide]);
    let again = builder.node("QuantizeLinear", "again", &["between", &fine, &none]);
    builder.node("DequantizeLinear", "y", &[&again, &fine, &none]);
    builder.output(Value::batch_of_f32("y", &[8]));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.onnx"), builder.build().unwrap().bytes()).unwrap();
    let error = compared(&folder.path().join("model.onnx")).unwrap_err().to_string();
    assert!(
        error.contains("tract without graph optimisation") && error.contains("output 'y' differs"),
        "{error}"
    );
    assert_eq!(compared(&magika_file()), Ok(()), "a sound model passes");
}

/// ONNX Runtime 1.32 aborts the process on such a sequence.
#[test]
fn empty_sequence_of_a_recurrent_model_is_an_error() {
    if !has_onnx_runtime() {
        return;
    }
    let mut builder = Builder::new("gru", 1).opset(17);
    let dims = vec![Dim::Symbol("time".into()), Dim::Fixed(1), Dim::Fixed(2)];
    let x = builder.input(Value { name: "x".into(), datatype: Kind::Float, shape: Some(dims) });
    let mut weights = |name: &str, dims: &[usize]| {
        let values = vec![0.1; dims.iter().product()];
        builder.constant(Constant::from_f32(name, dims, &values).unwrap())
    };
    let (w, r) = (weights("w", &[1, 9, 2]), weights("r", &[1, 9, 3]));
    builder.node_with("GRU", "y", &[&x, &w, &r], [("hidden_size", Attribute::Int(3))]);
    let dims = vec![Dim::Symbol("time".into()), Dim::Fixed(1), Dim::Fixed(1), Dim::Fixed(3)];
    builder.output(Value { name: "y".into(), datatype: Kind::Float, shape: Some(dims) });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, builder.build().unwrap().bytes()).unwrap();
    let mut model = load("ort", &path).unwrap();
    let sequence = |steps: usize| Tensor::from_f32([steps, 1, 2].as_slice(), &vec![1.0; steps * 2]).unwrap();
    assert_eq!(model.run(&[sequence(3)]).unwrap()[0].shape(), [3, 1, 1, 3]);
    let error = model.run(&[sequence(0)]).unwrap_err();
    assert!(error.to_string().contains("input 'x' of shape [0, 1, 2] has no elements"), "{error}");
    assert_eq!(parm_protocol::Error::from(error).code(), parm_protocol::Code::InvalidArgument);
}

#[test]
fn weights_in_a_file_that_is_cut_stay_in_service() {
    if !has_onnx_runtime() {
        return;
    }
    let mut builder = Builder::new("table", 1).opset(17);
    let dims = Some(vec![Dim::Symbol("rows".into())]);
    let at = builder.input(Value { name: "at".into(), datatype: Kind::Int64, shape: dims });
    let values: Vec<f32> = (0..40_000).map(|value| value as f32).collect();
    let table = builder.constant(Constant::from_f32("table", &[5000, 8], &values).unwrap());
    builder.node("Gather", "y", &[&table, &at]);
    let dims = Some(vec![Dim::Symbol("rows".into()), Dim::Fixed(8)]);
    builder.output(Value { name: "y".into(), datatype: Kind::Float, shape: dims });
    let mut proto = builder.build().unwrap().proto().clone();
    let weight = &mut proto.graph.as_mut().unwrap().initializer[0];
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weights.bin"), weight.raw_data.take().unwrap()).unwrap();
    weight.data_location = 1;
    weight.external_data =
        vec![StringStringEntryProto { key: "location".into(), value: "weights.bin".into() }];
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, proto.encode_to_vec()).unwrap();
    let mut model = load("ort", &path).unwrap();
    std::fs::write(folder.path().join("weights.bin"), []).unwrap();
    let last = Tensor::new(DataType::Int64, [1].as_slice(), 4999i64.to_le_bytes().to_vec().into()).unwrap();
    assert_eq!(run(&mut *model, &last), values[39_992..]);
}
