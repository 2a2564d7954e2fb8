//! Runs a deployed model as a black box on an engine.

use std::cell::RefCell;
use std::path::Path;

use anyhow::{Context, ensure};
use bytes::Bytes;
use parm_backend::EngineConfig;
use parm_backend::engine::{Model, by_name};
use parm_protocol::{DataType, Tensor};
use parm_training::data::{Parts, Samples};
use parm_training::{Array, Error, Teacher};

/// Rows in a run.
const CHUNK: usize = 64;

/// A model that an engine runs.
pub struct BlackBox {
    model: RefCell<Box<dyn Model>>,
    /// Places of the inputs in a row, for models with several.
    parts: Parts,
    /// Whether it returns all outputs of floats, or only the first.
    says_all: bool,
}

impl BlackBox {
    /// Loads a model into the engine called `engine`.
    pub fn load(engine: &str, path: &Path) -> anyhow::Result<Self> {
        let model = by_name(engine, &EngineConfig::default())?
            .load(path, &EngineConfig::default())
            .context("the deployed model")?;
        Ok(Self::of(model))
    }

    /// Wraps a loaded model.
    pub fn of(model: Box<dyn Model>) -> Self {
        Self { model: RefCell::new(model), parts: Parts::default(), says_all: false }
    }

    /// Sets the layout of rows to that of the samples.
    pub fn taking(self, samples: &Samples) -> Self {
        Self { parts: samples.parts.clone(), ..self }
    }

    /// Makes it return all outputs of floats, joined.
    pub fn saying_all(self) -> Self {
        Self { says_all: true, ..self }
    }

    /// Converts rows to the model's inputs.
    pub fn tensors(&self, rows: &Array<f32>) -> anyhow::Result<Vec<Tensor>> {
        let model = self.model.borrow();
        let (declared, given) = (&model.signature().inputs, self.parts.split(rows.clone()));
        let given = given.context("the rows have another length than the samples")?;
        let (wanted, inputs) = (declared.len(), given.len());
        ensure!(
            wanted == inputs,
            "the model has {wanted} inputs, but the rows have {inputs}: give an array for each"
        );
        let tensors = declared.iter().zip(&given).map(|(input, rows)| tensor(input.datatype, rows));
        tensors.collect()
    }

    /// Runs the model once.
    pub fn run(&self, inputs: &[Tensor]) -> anyhow::Result<Vec<Tensor>> {
        Ok(self.model.borrow_mut().run(inputs)?)
    }

    fn ask(&self, rows: &Array<f32>) -> anyhow::Result<Vec<f32>> {
        let outputs = self.run(&self.tensors(rows)?)?;
        let floats = outputs.iter().filter(|output| is_float(output.datatype()));
        let said = floats.take(if self.says_all { usize::MAX } else { 1 });
        let mut parts =
            said.map(|output| Ok(output.as_f32()?.into_owned())).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(!parts.is_empty(), "the model has no output of floats");
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        let count = rows.shape()[0];
        let part = |part: Vec<f32>| Array::new(vec![count, part.len() / count.max(1)], part);
        let parts: Option<Vec<Array<f32>>> = parts.into_iter().map(part).collect();
        let joined = parts.and_then(Parts::join);
        let (joined, _) =
            joined.context("an output does not have one row for each query, which training needs")?;
        Ok(joined.into_data())
    }
}

impl Teacher for BlackBox {
    fn predict(&self, rows: &Array<f32>) -> Result<Array<f32>, Error> {
        let count = rows.shape()[0];
        let mut said = Vec::new();
        for start in (0..count).step_by(CHUNK) {
            let chunk = rows.range(start, (start + CHUNK).min(count));
            said.extend(self.ask(&chunk).map_err(|error| Error::Teacher { message: format!("{error:#}") })?);
        }
        let values = said.len() / count.max(1);
        Array::new(vec![count, values], said).ok_or(Error::OutputKind)
    }
}

/// Whether the trainer can learn outputs of this type.
pub fn is_float(datatype: DataType) -> bool {
    matches!(datatype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64)
}

/// Converts rows to the number type of the model.
fn tensor(datatype: DataType, rows: &Array<f32>) -> anyhow::Result<Tensor> {
    macro_rules! cast {
        ($kind:ty) => {
            rows.data().iter().flat_map(|&value| (value as $kind).to_le_bytes()).collect::<Vec<u8>>()
        };
    }
    let bytes = match datatype {
        DataType::Fp32 => cast!(f32),
        DataType::Fp64 => cast!(f64),
        DataType::Bool => rows.data().iter().map(|&value| u8::from(value != 0.0)).collect(),
        DataType::Int64 => cast!(i64),
        DataType::Int32 => cast!(i32),
        DataType::Int16 => cast!(i16),
        DataType::Uint16 => cast!(u16),
        DataType::Int8 => cast!(i8),
        DataType::Uint8 => cast!(u8),
        other => anyhow::bail!("the model takes {other}, but rows are numbers"),
    };
    Ok(Tensor::new(datatype, rows.shape().to_vec(), Bytes::from(bytes))?)
}
