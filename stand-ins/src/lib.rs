//! Makes stand-ins from ONNX files without gradients and measures them.
//!
//! A stand-in is a cheaper model that answers late queries. Its value depends on its cost on this engine and
//! machine, and on how often it agrees with the deployed model. The graph shows neither. Therefore
//! [`make`] makes candidates of several families, measures each in the same run as the deployed model, and returns
//! the [`Frontier`]. Reading order: [`Rows`] are the model's inputs, a [`Workshop`] runs graphs on an engine, `graph`
//! is the families' view of a graph, `exact` (rewrites), `int8` (8-bit copies), `prune` (fewer channels) and `layers`
//! (fewer layers) are the families, and `measure` determines cost and agreement.

mod exact;
mod graph;
mod int8;
mod layers;
mod measure;
mod memory;
mod prune;
mod publish;
mod rows;
mod search;
#[cfg(test)]
mod testing;
mod workshop;

use std::io;
use std::path::Path;

use parm_parity_models::onnx::Defect;

pub use graph::Work;
pub use measure::{Comparison, Difference, Given, Meanings, Meant, Share, Source, Sureness};
pub use publish::{Place, publish};
pub use rows::Rows;
pub use search::{
    Apart, Candidate, Frontier, Grade, Grades, Interruption, Lessons, Refused, School, Setting, Wish,
    check_size, grade, make,
};
pub use workshop::{Progress, Runner, Stored, Workshop};

/// An error of the search for a stand-in.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error(transparent)]
    Graph(#[from] Defect),
    #[error(transparent)]
    Engine(#[from] parm_backend::Error),
    #[error(transparent)]
    Tensor(#[from] parm_protocol::Error),
    #[error(transparent)]
    Bundle(#[from] parm_parity_models::Error),
    /// The model, its rows or their labels cannot be used: a sentence with the remedy.
    #[error("{0}")]
    Unusable(String),
    /// A file or an answer of the engine is not as it must be.
    #[error("{0}")]
    Failed(String),
    #[error("the time limit ended before a candidate was made, so nothing was measured: raise --time-limit")]
    NothingMade,
    #[error("stopped before the search was finished")]
    Stopped,
}

/// The error of something that cannot be used.
fn unusable<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Unusable(message.into()))
}

/// The error of a file that cannot be read or written.
fn file<T>(doing: &str, path: &Path, result: io::Result<T>) -> Result<T, Error> {
    let failed = |error| Error::Failed(format!("cannot {doing} '{}': {error}", path.display()));
    result.map_err(failed)
}
