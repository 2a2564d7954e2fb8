//! A deployed model as a black box: an engine says what it makes of rows.

use std::cell::RefCell;
use std::path::Path;

use anyhow::Context;
use bytes::Bytes;
use parm_backend::engine::{Model, Options, by_name};
use parm_protocol::{DataType, Tensor};
use parm_training::{Array, Error, Teacher};

/// Rows that are asked about at a time.
const CHUNK: usize = 64;

/// A model that an engine runs.
pub struct BlackBox(RefCell<Box<dyn Model>>);

impl BlackBox {
    /// Loads a model into the engine called `engine`.
    pub fn load(engine: &str, path: &Path) -> anyhow::Result<Self> {
        let model = by_name(engine, &Options::default())?
            .load(path, &Options::default())
            .context("the deployed model")?;
        Ok(Self(RefCell::new(model)))
    }

    fn ask(&self, rows: &Array<f32>) -> anyhow::Result<Vec<f32>> {
        let mut model = self.0.borrow_mut();
        let declared = model.signature().inputs.first().context("the model has no input")?.datatype;
        let outputs = model.run(&[tensor(declared, rows)?])?;
        let output = outputs.first().context("the model has no output")?;
        Ok(output.as_f32()?.into_owned())
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

/// Rows as the kind of number that the model takes.
fn tensor(datatype: DataType, rows: &Array<f32>) -> anyhow::Result<Tensor> {
    macro_rules! cast {
        ($kind:ty) => {
            rows.data().iter().flat_map(|&value| (value as $kind).to_le_bytes()).collect::<Vec<u8>>()
        };
    }
    let bytes = match datatype {
        DataType::Fp32 => cast!(f32),
        DataType::Fp64 => cast!(f64),
        DataType::Int64 => cast!(i64),
        DataType::Int32 => cast!(i32),
        DataType::Int16 => cast!(i16),
        DataType::Int8 => cast!(i8),
        DataType::Uint8 => cast!(u8),
        other => anyhow::bail!("the model takes {other}, of which rows of numbers cannot be made"),
    };
    Ok(Tensor::new(datatype, rows.shape().to_vec(), Bytes::from(bytes))?)
}
