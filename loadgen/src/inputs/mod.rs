//! Inputs of a run: rows of a file, or values generated from a model's metadata, prepared before the run.

mod convert;
mod generated;
mod recorded;

use parm_protocol::{InferRequest, ModelMetadata, ModelRef, NamedTensor, Parameters};

pub use recorded::{Column, Recorded};

use crate::Error;

/// The requests that a run sends in turn.
#[derive(Clone, Debug)]
pub struct Inputs(Source);

#[derive(Clone, Debug)]
enum Source {
    /// A few generated ones.
    Generated(Vec<InferRequest>),
    /// Rows of files, cut into requests when they are sent.
    Recorded(Recorded),
}

impl Inputs {
    /// Generates requests of `rows` rows for a model. A dimension that varies is 1.
    pub fn generate(model: &ModelMetadata, rows: usize, seed: u64) -> Result<Self, Error> {
        Ok(Self(Source::Generated(generated::requests(model, rows, seed, generated::DISTINCT)?)))
    }

    /// Generates this many distinct requests, or fewer if they are large: for experiments whose run times follow the query.
    pub fn generate_many(model: &ModelMetadata, rows: usize, seed: u64, count: usize) -> Result<Self, Error> {
        Ok(Self(Source::Generated(generated::requests(model, rows, seed, count)?)))
    }

    /// Sends the rows of `recorded` from the first on, repeatedly.
    pub fn recorded(recorded: Recorded) -> Self {
        Self(Source::Recorded(recorded))
    }

    /// Returns request number `index`; its tensors are shared, not copied.
    pub fn request(&self, index: usize) -> InferRequest {
        match &self.0 {
            Source::Generated(requests) => requests[index % requests.len()].clone(),
            Source::Recorded(recorded) => recorded.request(index),
        }
    }

    /// Returns the right classes of all rows, if labels were given.
    pub fn all_labels(&self) -> Option<&[i64]> {
        match &self.0 {
            Source::Generated(_) => None,
            Source::Recorded(recorded) => recorded.all_labels(),
        }
    }

    /// Returns the right classes for the rows of request `index`, if labels were given.
    pub fn labels(&self, index: usize) -> Option<&[i64]> {
        match &self.0 {
            Source::Generated(_) => None,
            Source::Recorded(recorded) => recorded.labels(index),
        }
    }
}

fn request(model: &str, inputs: Vec<NamedTensor>) -> InferRequest {
    InferRequest {
        model: ModelRef::latest(model),
        id: String::new(),
        parameters: Parameters::new(),
        inputs,
        outputs: Vec::new(),
    }
}
