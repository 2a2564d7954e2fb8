//! Rows of files as requests: one file per input, one row per example.

use std::path::{Path, PathBuf};

use parm_arrays::Array;
use parm_protocol::{DataType, InferRequest, ModelMetadata, NamedTensor, Tensor, TensorMetadata};

use super::convert;
use crate::Error;

/// Most bytes of an unpacked file: inputs stay in memory for the whole run.
const LARGEST: u64 = 1 << 30;

/// A file and the input that its rows are for, as a user writes it: `FILE`, or `INPUT=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The model's input; not needed where the model has one.
    pub input: Option<String>,
    /// The file.
    pub path: PathBuf,
}

impl From<&str> for Column {
    fn from(text: &str) -> Self {
        match text.split_once('=') {
            Some((input, path)) => Self { input: Some(input.into()), path: path.into() },
            None => Self { input: None, path: text.into() },
        }
    }
}

/// Examples in files, with or without their classes.
#[derive(Clone, Debug)]
pub struct Recorded {
    model: String,
    inputs: Vec<Rows>,
    /// The right class of each row, if labels were given.
    pub labels: Option<Vec<i64>>,
    /// Rows in a request.
    rows: usize,
    /// Whole requests that the files hold.
    requests: usize,
}

impl Recorded {
    /// Reads the files for the inputs of a model, to be sent `rows` rows at a time.
    pub fn read(model: &ModelMetadata, columns: &[Column], rows: usize) -> Result<Self, Error> {
        let inputs: Vec<Rows> =
            model.inputs.iter().map(|input| Rows::read(input, columns, model)).collect::<Result<_, _>>()?;
        let known = |column: &&Column| {
            column.input.as_ref().is_none_or(|name| model.inputs.iter().any(|i| i.name == *name))
        };
        if let Some(unknown) = columns.iter().find(|column| !known(column)) {
            return Err(Error::NoSuchTensor {
                name: unknown.input.clone().unwrap_or_default(),
                known: model.inputs.iter().map(|input| input.name.clone()).collect::<Vec<_>>().join(", "),
            });
        }
        if rows > 1 && inputs.iter().any(|input| input.batch != Batch::Any) {
            return Err(Error::OneRowOnly { model: model.name.clone(), rows });
        }
        let counts: Vec<usize> = inputs.iter().map(|input| input.tensor.rows()).collect();
        let (fewest, most) =
            (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        if fewest != most {
            return Err(Error::UnequalRows { fewest, most });
        }
        let requests = fewest.checked_div(rows).unwrap_or(0);
        if requests == 0 {
            return Err(Error::TooFewRows { rows: fewest, wanted: rows });
        }
        Ok(Self { model: model.name.clone(), inputs, labels: None, rows, requests })
    }

    /// Adds the right class of every row, from a file of whole numbers.
    pub fn with_labels(self, path: &Path) -> Result<Self, Error> {
        let array = parm_arrays::read(path, LARGEST)?;
        let bad = |detail: String| Error::BadArray { path: path.display().to_string(), detail };
        let whole = |number: f64| (number.fract() == 0.0 && number >= 0.0).then_some(number as i64);
        let labels: Option<Vec<i64>> =
            parm_arrays::numbers(&array.tensor).and_then(|all| all.map(whole).collect());
        let labels = labels.ok_or_else(|| bad("labels are whole numbers from 0".into()))?;
        let rows = self.inputs.first().map_or(0, |input| input.tensor.rows());
        if labels.len() != rows {
            return Err(bad(format!("it has {} labels for {rows} rows", labels.len())));
        }
        Ok(Self { labels: Some(labels), ..self })
    }

    pub(super) fn request(&self, index: usize) -> InferRequest {
        let first = index % self.requests * self.rows;
        let inputs = self.inputs.iter().map(|input| input.slice(first, self.rows)).collect();
        super::request(&self.model, inputs)
    }

    pub(super) fn labels(&self, index: usize) -> Option<&[i64]> {
        let first = index % self.requests * self.rows;
        self.labels.as_deref().map(|labels| &labels[first..first + self.rows])
    }
}

/// The rows of one input.
#[derive(Clone, Debug)]
struct Rows {
    name: String,
    /// All of them, the first dimension counting them.
    tensor: Tensor,
    batch: Batch,
}

/// The number of rows that the model takes in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    Any,
    One,
    /// One, and it has no dimension for them.
    None,
}

impl Rows {
    fn read(input: &TensorMetadata, columns: &[Column], model: &ModelMetadata) -> Result<Self, Error> {
        let only = model.inputs.len() == 1 && columns.len() == 1;
        let meant = |column: &&Column| match &column.input {
            Some(name) => *name == input.name,
            None => only,
        };
        let column = columns.iter().find(meant).ok_or_else(|| Error::NoFile { input: input.name.clone() })?;
        let datatype: DataType = input.datatype.parse()?;
        if datatype == DataType::Bytes {
            return Err(Error::TextRows { input: input.name.clone() });
        }
        let array = parm_arrays::read(&column.path, LARGEST)?;
        let bad = |detail: String| Error::BadArray { path: column.path.display().to_string(), detail };
        let (batch, wanted) = match input.shape.split_first() {
            Some((-1, row)) => (Batch::Any, row),
            Some((1, row)) => (Batch::One, row),
            _ => (Batch::None, &input.shape[..]),
        };
        let shape = shape(&array, wanted).ok_or_else(|| {
            bad(format!(
                "it has shape {:?}, but input '{}' takes rows of shape {wanted:?} (-1 varies)",
                array.tensor.shape(),
                input.name
            ))
        })?;
        let data = convert::elements(&array, datatype).map_err(bad)?;
        Ok(Self { name: input.name.clone(), tensor: Tensor::new(datatype, shape, data)?, batch })
    }

    fn slice(&self, first: usize, rows: usize) -> NamedTensor {
        let part = self.tensor.slice_rows(first, rows);
        let part = part.and_then(|part| match self.batch {
            Batch::None => Tensor::new(part.datatype(), &part.shape()[1..], part.data().clone()),
            Batch::Any | Batch::One => Ok(part),
        });
        NamedTensor::new(
            &self.name,
            part.unwrap_or_else(|_| unreachable!("the rows were counted and checked")),
        )
    }
}

/// Returns the array's shape as rows of the wanted shape: a fixed shape fits any shape with as many elements.
fn shape(array: &Array, wanted: &[i64]) -> Option<Vec<usize>> {
    let (&rows, row) = array.tensor.shape().split_first()?;
    let fixed: Option<Vec<usize>> = wanted.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let row = match fixed {
        Some(fixed) => {
            let count = fixed.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
            (count == row.iter().product::<usize>()).then_some(fixed)?
        }
        None => {
            let fits = |(&dim, &wanted): (&usize, &i64)| wanted < 0 || dim as i64 == wanted;
            (row.len() == wanted.len() && row.iter().zip(wanted).all(fits)).then(|| row.to_vec())?
        }
    };
    Some([vec![rows], row].concat())
}
