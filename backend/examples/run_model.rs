//! Runs a model once on tensors from files: `run_model ENGINE MODEL.onnx FOLDER`.
//!
//! FOLDER contains `input_0.pb`, `input_1.pb` and so on, in the model's order; the outputs `output_0.pb` and so on are
//! written there. `lab/interop/engines.sh` compares the engines with it.

mod support;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use parm_backend::{EngineConfig, engine};
use parm_parity_models::onnx::proto::TensorProto;
use parm_protocol::{DataType, Tensor};
use prost::Message;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let usage = "usage: run_model ENGINE MODEL.onnx FOLDER";
    let mut next = || arguments.next().context(usage);
    let (name, model, folder) = (next()?, PathBuf::from(next()?), PathBuf::from(next()?));
    let engine = engine::by_name(&name.to_string_lossy(), &EngineConfig::default())?;
    let started = Instant::now();
    let mut model = engine.load(&model, &EngineConfig::default())?;
    let loaded = started.elapsed();
    let count = model.signature().inputs.len();
    let inputs = (0..count).map(|at| support::read(&folder.join(format!("input_{at}.pb"))));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let started = Instant::now();
    let outputs = model.run(&inputs)?;
    eprintln!("{}: loaded in {loaded:?}, ran in {:?}", engine.platform(), started.elapsed());
    for (at, output) in outputs.iter().enumerate() {
        write(&folder.join(format!("output_{at}.pb")), output)?;
    }
    Ok(())
}

/// Writes a tensor.
fn write(path: &Path, tensor: &Tensor) -> Result<()> {
    let stored = (1..=16).find(|stored| support::datatype(*stored) == Some(tensor.datatype()));
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
