//! Engines with a real model.

use std::path::Path;

use parm_backend::engine::{Model, Options, by_name};
use parm_protocol::{DataType, Tensor};

fn magika(engine: &str) -> Box<dyn Model> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/magika/1/model.onnx");
    by_name(engine, &Options::default()).unwrap().load(&path, &Options::default()).unwrap()
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
fn invalid_model_error_names_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, [0xff; 64]).unwrap();
    let error =
        by_name("tract", &Options::default()).unwrap().load(&path, &Options::default()).err().unwrap();
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
}

/// Runs only if ORT_DYLIB_PATH names a library: other machines have nothing to compare.
#[test]
fn tract_and_onnx_runtime_agree() {
    #[allow(clippy::disallowed_methods)] // names the library to test with
    if std::env::var_os("ORT_DYLIB_PATH").is_none() {
        return;
    }
    let input = rows(&TEXTS);
    assert!(close(&run(&mut *magika("tract"), &input), &run(&mut *magika("ort"), &input)));
}
