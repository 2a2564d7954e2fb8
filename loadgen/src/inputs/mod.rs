//! Inputs of a run: rows of a file, or values generated from a model's metadata, prepared before the run.

mod convert;
mod generated;
mod recorded;

use parm_protocol::{InferRequest, ModelMetadata, ModelRef, NamedTensor};

pub use recorded::{Column, Recorded};

use crate::Error;

/// The requests that a run sends in turn.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// A few generated ones.
    Generated(Vec<InferRequest>),
    /// Rows of files, cut into requests when they are sent.
    Recorded(Recorded),
}

impl Inputs {
    /// Generates requests of `rows` rows for a model. A dimension that varies is 1.
    pub fn generate(model: &ModelMetadata, rows: usize, seed: u64) -> Result<Self, Error> {
        Self::generate_many(model, rows, seed, generated::DISTINCT)
    }

    /// Generates this many distinct requests, or fewer if they are large: for experiments whose run times follow the query.
    pub fn generate_many(model: &ModelMetadata, rows: usize, seed: u64, count: usize) -> Result<Self, Error> {
        Ok(Self::Generated(generated::requests(model, rows, seed, count)?))
    }

    /// Returns request number `index`; its tensors are shared, not copied.
    pub fn request(&self, index: usize) -> InferRequest {
        match self {
            Self::Generated(requests) => requests[index % requests.len()].clone(),
            Self::Recorded(recorded) => recorded.request(index),
        }
    }

    /// Returns the right classes for the rows of request `index`, if labels were given.
    pub fn labels(&self, index: usize) -> Option<&[i64]> {
        match self {
            Self::Generated(_) => None,
            Self::Recorded(recorded) => recorded.labels(index),
        }
    }
}

fn request(model: &str, inputs: Vec<NamedTensor>) -> InferRequest {
    InferRequest { model: ModelRef::latest(model), inputs, ..InferRequest::default() }
}
