//! Runs ONNX files with an engine: `run_model ENGINE MODEL.onnx FOLDER`, or `run_model ENGINE FOLDER` for ONNX's node tests.
//!
//! The first runs a model once on `input_0.pb`, `input_1.pb` and so on in FOLDER, in the model's order, and writes
//! `output_0.pb` and so on there. `lab/interop/engines.sh` compares the engines with it.
//!
//! The second counts the node tests that an engine passes. FOLDER contains `test_*/model.onnx` with
//! `test_data_set_0/{input,output}_N.pb`, as in Debian's libonnx-testdata. Prints a line for each test and the counts at the
//! end. A test passes if every output agrees within a relative 1e-3 or an absolute 1e-5 (ONNX's own runner allows 1e-3 and
//! 1e-7).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use parm_backend::engine::{self, Engine, guarded};
use parm_backend::{EngineConfig, Error};
use parm_parity_models::bundle::floats;
use parm_parity_models::onnx;
use parm_parity_models::onnx::proto::TensorProto;
use parm_protocol::{DataType, Shape, Tensor};
use prost::Message;

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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let engine = |name: &str| engine::by_name(name, &EngineConfig::default());
    match &arguments[..] {
        [name, model, folder] => run_once(&*engine(name)?, Path::new(model), Path::new(folder)),
        [name, folder] => count(name, &*engine(name)?, Path::new(folder)),
        _ => bail!("usage: run_model ENGINE [MODEL.onnx] FOLDER"),
    }
}

fn run_once(engine: &dyn Engine, model: &Path, folder: &Path) -> Result<()> {
    let started = Instant::now();
    let mut model = engine.load(model, &EngineConfig::default())?;
    let loaded = started.elapsed();
    let count = model.signature().inputs.len();
    let inputs = (0..count).map(|at| read(&folder.join(format!("input_{at}.pb"))));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let started = Instant::now();
    let outputs = model.run(&inputs)?;
    eprintln!("{}: loaded in {loaded:?}, ran in {:?}", engine.platform(), started.elapsed());
    let mut outputs = outputs.iter().enumerate();
    outputs.try_for_each(|(at, output)| write(&folder.join(format!("output_{at}.pb")), output))
}

fn count(name: &str, engine: &dyn Engine, folder: &Path) -> Result<()> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut counts = BTreeMap::new();
    let mut out = std::io::stdout().lock();
    for test in tests(folder)? {
        let (outcome, why) = run(engine, &test);
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
    (0..).map(path).take_while(|path| path.is_file()).map(|path| read(&path)).collect()
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

/// Writes a tensor.
fn write(path: &Path, tensor: &Tensor) -> Result<()> {
    let stored = (1..=16).find(|stored| datatype(*stored) == Some(tensor.datatype()));
    let data_type = stored.context("a datatype without a name in ONNX")?;
    let mut proto = TensorProto { data_type, ..TensorProto::default() };
    proto.dims = tensor.shape().iter().map(|&dim| dim as i64).collect();
    if tensor.datatype() == DataType::Bytes {
        proto.string_data = tensor.strings().map(|string| string.to_vec()).collect();
    } else {
        proto.raw_data = Some(tensor.data().clone());
    }
    std::fs::write(path, proto.encode_to_vec()).with_context(|| format!("writing {}", path.display()))
}

/// The protocol's type of an element type of ONNX.
fn datatype(stored: i32) -> Option<DataType> {
    onnx::DataType::try_from(stored).ok()?.to_protocol()
}

/// Reads a tensor.
fn read(path: &Path) -> Result<Tensor> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let proto = TensorProto::decode(&*bytes).with_context(|| format!("decoding {}", path.display()))?;
    let Some(datatype) = datatype(proto.data_type) else {
        bail!("{} has elements of type {}, which the protocol lacks", path.display(), proto.data_type);
    };
    let shape: Shape = proto.dims.iter().map(|&dim| dim as usize).collect();
    let raw = proto.raw_data.clone().filter(|raw| !raw.is_empty());
    let data = raw.unwrap_or_else(|| typed(&proto, datatype));
    Ok(Tensor::new(datatype, shape, data)?)
}

/// The elements of the typed fields; small types share `int32_data`.
fn typed(proto: &TensorProto, datatype: DataType) -> Bytes {
    let mut data = BytesMut::new();
    match datatype {
        DataType::Bytes => proto.string_data.iter().for_each(|text| {
            data.put_u32_le(text.len() as u32);
            data.put_slice(text);
        }),
        DataType::Fp32 => proto.float_data.iter().for_each(|&value| data.put_f32_le(value)),
        DataType::Fp64 => proto.double_data.iter().for_each(|&value| data.put_f64_le(value)),
        DataType::Int64 => proto.int64_data.iter().for_each(|&value| data.put_i64_le(value)),
        DataType::Uint32 => proto.uint64_data.iter().for_each(|&value| data.put_u32_le(value as u32)),
        DataType::Uint64 => proto.uint64_data.iter().for_each(|&value| data.put_u64_le(value)),
        small => {
            let size = small.size().unwrap_or(4);
            proto.int32_data.iter().for_each(|&value| data.put_slice(&value.to_le_bytes()[..size]));
        }
    }
    data.freeze()
}
