//! Reads, checks and rewrites ONNX files.
//!
//! A parity model is the deployed graph with new weights and, for slot codes, a wider first and last layer. This module
//! therefore changes the user's file without an engine and without the semantics of most operators. [`Model`] is the
//! file, and [`Graph`] is its decoded form.

mod attribute;
mod builder;
mod census;
mod check;
mod datatype;
mod domain;
mod error;
mod external;
mod graph;
mod inspect;
mod layer;
mod limits;
mod locations;
mod model;
mod node;
#[rustfmt::skip]
#[allow(missing_docs, clippy::all)] // generated: the schema in proto/onnx.proto documents it
pub mod proto;
pub mod rewrite;
mod splice;
mod tensor;
mod topology;
mod value;
mod wire;

pub use attribute::Attribute;
pub use builder::Builder;
pub use check::Finding;
pub use datatype::DataType;
pub use error::Defect;
pub use graph::{Graph, Opset};
pub use inspect::Inspection;
pub use layer::{BatchNorm, Conv, Dense, Pool};
pub use limits::Limits;
pub use locations::{is_inside, locations};
pub use model::Model;
pub use node::Node;
pub use parm_random::Random;
pub use tensor::Tensor;
pub use value::{Dim, Value};
