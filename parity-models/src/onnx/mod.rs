//! Reads, checks and rewrites ONNX files.
//!
//! A parity model is the deployed graph with new weights and, for slot codes, a wider first and last layer. This module
//! therefore changes the user's file without an engine and without the semantics of most operators. [`Model`] is the
//! file, and [`Graph`] is its decoded form.

mod attribute;
mod builder;
mod check;
mod datatype;
mod domain;
mod error;
mod external;
mod graph;
mod inspect;
mod layer;
mod limits;
mod model;
mod node;
pub mod ops;
pub mod proto;
pub mod rewrite;
mod tensor;
mod topology;
mod value;
mod walk;

pub use attribute::Attribute;
pub use builder::Builder;
pub use check::Finding;
pub use datatype::DataType;
pub use error::Defect;
pub use graph::{Graph, Opset};
pub use inspect::Inspection;
pub use layer::{BatchNorm, Conv, Dense, Pool};
pub use limits::Limits;
pub use model::Model;
pub use node::Node;
pub use ops::{Kind, Layer, LayerOp};
pub use parm_random::Random;
pub use tensor::Tensor;
pub use value::{Dim, Value};
pub use walk::{is_inside, locations};
