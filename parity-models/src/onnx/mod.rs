//! Reads, checks and rewrites ONNX files.
//!
//! A parity model is the deployed graph with new weights and, for slot codes, a wider first and last layer. This module
//! therefore changes the user's file without an engine and without the semantics of most operators. [`Model`] is the
//! file, and [`Graph`] is its decoded form.

mod builder;
mod error;
mod graph;
mod inspect;
mod model;
pub mod ops;
pub mod proto;
pub mod rewrite;
mod tensor;
mod walk;

pub use builder::{BatchNorm, Builder, Conv, Dense, Pool};
pub use error::Defect;
pub use graph::{Attribute, Dim, Graph, Node, Value};
pub use inspect::{Finding, Inspection};
pub(crate) use model::read;
pub use model::{Limits, Model};
pub use ops::{Kind, Layer, LayerOp};
pub use tensor::{DataType, Tensor};
pub use walk::{is_inside, locations};
