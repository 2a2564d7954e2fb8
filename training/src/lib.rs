//! Training parity models and learned codes in Burn for any ONNX model
//!
//! A user brings an ONNX file. [`Network`] interprets its graph over Burn tensors at run time, so that the file is at
//! once a teacher, a starting point and an architecture: initialisers are parameters, gradients flow, and trained
//! weights go back into the same file. Burn's types stay inside this crate: what goes in and comes out are [`Array`]s
//! in host memory and ONNX files.

mod array;
pub mod data;
mod device;
mod error;
pub mod evaluate;
mod graph;
mod network;

pub use array::Array;
pub use device::Device;
pub use error::Error;
pub use graph::{Host, Problem};
pub use network::{Gradients, Network};
