//! Trains and evaluates parity models, learned codes, stand-ins and base models with Burn, for any ONNX model.
//!
//! [`Network`] interprets the graph of an ONNX file over Burn tensors at run time. So the file is at once a teacher,
//! a starting point and an architecture: constants that operators use as weights are parameters, gradients flow, and trained
//! weights go back into the same file. A recipe of `parity`, `stand_in` or `base` becomes a lesson of `learn`, which the loop
//! in `fit` runs. Burn's types stay inside this crate: its API uses [`Array`]s in host memory and ONNX files.

mod array;
pub mod base;
pub mod code;
pub mod data;
mod device;
mod error;
pub mod evaluate;
mod file;
pub mod fit;
mod graph;
mod groups;
mod learn;
pub mod matrix;
mod network;
pub mod parity;
pub mod stand_in;

pub use array::Array;
pub use device::Device;
pub use error::Error;
pub use fit::{Course, Decay};
pub use graph::{Host, Mode, Problem};
pub use learn::{Augmentation, Loss, Marks, Teacher};
pub use network::{Gradients, Network};
