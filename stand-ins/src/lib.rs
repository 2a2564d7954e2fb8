//! Makes stand-ins from ONNX files without gradients and measures them.
//!
//! A stand-in is a cheaper model that answers late queries. Its value depends on its cost on this engine and
//! machine, and on how often it agrees with the deployed model. The graph shows neither. Therefore
//! [`make`] makes candidates of several families, measures each in the same run as the deployed model, and returns
//! the [`Frontier`]. Reading order: [`Rows`] are the model's inputs, a [`Workshop`] runs graphs on an engine, `graph`
//! is the families' view of a graph, `exact` (rewrites), `int8` (8-bit copies), `prune` (fewer channels) and `layers`
//! (fewer layers) are the families, and `measure` determines cost and agreement.

mod error;
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

pub use error::Error;
pub use graph::Work;
pub use measure::{Comparison, Difference, Given, Meanings, Meant, Share, Source, Sureness};
pub use publish::{Place, publish};
pub use rows::Rows;
pub use search::{
    Apart, Candidate, Frontier, Grade, Grades, Interruption, Lessons, Refused, School, Setting, Wish,
    check_size, grade, make,
};
pub use workshop::{Progress, Runner, Stored, Workshop};
