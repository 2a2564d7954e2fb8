//! A deployed model as a black box: an engine says what it makes of rows.

use std::cell::RefCell;
use std::path::Path;

use anyhow::{Context, ensure};
use bytes::Bytes;
use parm_backend::engine::{Model, Options, by_name};
use parm_protocol::{DataType, Tensor};
use parm_training::data::{Parts, Samples};
use parm_training::{Array, Error, Teacher};

/// Rows that are asked about at a time.
const CHUNK: usize = 64;

/// A model that an engine runs.
pub struct BlackBox {
    model: RefCell<Box<dyn Model>>,
    /// What is where in a row, where there are several inputs.
    parts: Parts,
}

impl BlackBox {
    /// Loads a model into the engine called `engine`.
    pub fn load(engine: &str, path: &Path) -> anyhow::Result<Self> {
        let model = by_name(engine, &Options::default())?
            .load(path, &Options::default())
            .context("the deployed model")?;
        Ok(Self { model: RefCell::new(model), parts: Parts::default() })
    }

    /// The same for rows like these.
    pub fn taking(self, samples: &Samples) -> Self {
        Self { parts: samples.parts.clone(), ..self }
    }

    fn ask(&self, rows: &Array<f32>) -> anyhow::Result<Vec<f32>> {
        let mut model = self.model.borrow_mut();
        let (declared, given) = (&model.signature().inputs, self.parts.split(rows.clone()));
        let given = given.context("the rows are not as long as those that it was prepared for")?;
        let (wanted, inputs) = (declared.len(), given.len());
        ensure!(wanted == inputs, "it has {wanted} inputs, the rows hold {inputs}: give an array for each");
        let tensors = declared.iter().zip(&given).map(|(input, rows)| tensor(input.datatype, rows));
        let tensors = tensors.collect::<anyhow::Result<Vec<_>>>()?;
        let outputs = model.run(&tensors)?;
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
        DataType::Bool => rows.data().iter().map(|&value| u8::from(value != 0.0)).collect(),
        DataType::Int64 => cast!(i64),
        DataType::Int32 => cast!(i32),
        DataType::Int16 => cast!(i16),
        DataType::Uint16 => cast!(u16),
        DataType::Int8 => cast!(i8),
        DataType::Uint8 => cast!(u8),
        other => anyhow::bail!("the model takes {other}, of which rows of numbers cannot be made"),
    };
    Ok(Tensor::new(datatype, rows.shape().to_vec(), Bytes::from(bytes))?)
}
