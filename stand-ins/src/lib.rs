//! Stand-ins made from ONNX files without a gradient, and measured: exact rewrites, 8-bit copies, pruned blocks.
//!
//! A stand-in is worth what it costs on the engine and the machine at hand and how often it says what the deployed model
//! says; neither can be told from the graph. So [`make`] makes candidates of several families, measures each beside the
//! deployed model in the same run, and shows the [`Frontier`]. Reading order: [`Rows`] are what the model is asked about, a
//! [`Workshop`] runs graphs on an engine, `graph` is the view of a graph that families share, `exact`, `int8`, `prune` and `layers` are
//! the families, `measure` says what a candidate costs and how often it agrees.

mod error;
mod exact;
mod graph;
mod int8;
mod layers;
mod measure;
mod prune;
mod publish;
mod rows;
mod search;
#[cfg(test)]
mod testing;
mod workshop;

pub use error::Error;
pub use graph::Work;
pub use measure::{Gap, Share, Sureness};
pub use publish::{Place, publish};
pub use rows::Rows;
pub use search::{
    Apart, Candidate, Frontier, Grade, Grades, Lessons, Refused, School, Setting, Wish, check_size, grade,
    make,
};
pub use workshop::{Progress, Runner, Workshop};
