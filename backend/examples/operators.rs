//! Counts the ONNX node tests that an engine passes: `operators ENGINE FOLDER`.
//!
//! FOLDER contains `test_*/model.onnx` with `test_data_set_0/{input,output}_N.pb`, as in Debian's libonnx-testdata.
//! Prints a line for each test and the counts at the end. A test passes if every output agrees within a relative 1e-3
//! or an absolute 1e-5 (ONNX's own runner allows 1e-3 and 1e-7).

mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use parm_backend::engine::{self, Engine, guarded};
use parm_backend::{EngineConfig, Error};
use parm_parity_models::bundle::floats;
use parm_protocol::Tensor;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Pass,
    Unsupported,
    Wrong,
    Panic,
    /// The data or the tensors have a type that the protocol lacks (sequences, optionals, exotic types).
    Skipped,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: operators ENGINE FOLDER";
    let (name, folder) = (arguments.next().context(usage)?, arguments.next().context(usage)?);
    let engine = engine::by_name(&name, &EngineConfig::default())?;
    std::panic::set_hook(Box::new(|_| {}));
    let mut counts = BTreeMap::new();
    let mut out = std::io::stdout().lock();
    for test in tests(Path::new(&folder))? {
        let (outcome, why) = run(&*engine, &test);
        let name = test.file_name().unwrap_or_default().to_string_lossy();
        writeln!(out, "{outcome:?}\t{name}\t{}", why.replace(['\n', '\t'], " "))?;
        *counts.entry(outcome).or_insert(0) += 1;
    }
    writeln!(out, "{name}: {counts:?}")?;
    Ok(())
}

fn tests(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut tests: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    tests.retain(|test| test.join("model.onnx").is_file());
    tests.sort();
    Ok(tests)
}

fn run(engine: &dyn Engine, test: &Path) -> (Outcome, String) {
    let data = test.join("test_data_set_0");
    let (Ok(inputs), Ok(expected)) = (tensors(&data, "input"), tensors(&data, "output")) else {
        return (Outcome::Skipped, "the test data are not tensors".into());
    };
    let attempt = || {
        let mut model = engine.load(&test.join("model.onnx"), &EngineConfig::default())?;
        guarded(|| model.run(&inputs))
    };
    match attempt() {
        Ok(outputs) if agree(&outputs, &expected) => (Outcome::Pass, String::new()),
        Ok(_) => (Outcome::Wrong, String::new()),
        Err(Error::Panicked { message }) => (Outcome::Panic, message),
        Err(error @ Error::TensorType { .. }) => (Outcome::Skipped, error.to_string()),
        Err(error) => (Outcome::Unsupported, error.to_string()),
    }
}

fn tensors(folder: &Path, kind: &str) -> Result<Vec<Tensor>> {
    let path = |at: usize| folder.join(format!("{kind}_{at}.pb"));
    (0..).map(path).take_while(|path| path.is_file()).map(|path| support::read(&path)).collect()
}

fn agree(actual: &[Tensor], expected: &[Tensor]) -> bool {
    actual.len() == expected.len()
        && actual.iter().zip(expected).all(|(actual, expected)| same(actual, expected))
}

fn same(actual: &Tensor, expected: &Tensor) -> bool {
    if actual.datatype() != expected.datatype() || actual.shape() != expected.shape() {
        return false;
    }
    let (Some(a), Some(b)) = (floats(actual), floats(expected)) else {
        return actual.data() == expected.data();
    };
    let close =
        |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 + 1e-3 * b.abs();
    a.iter().zip(&*b).all(close)
}
