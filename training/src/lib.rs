//! Trains parity models, learned codes and stand-ins with Burn for any ONNX model.
//!
//! [`Network`] interprets the graph of an ONNX file over Burn tensors at run time. So the file is at once a teacher,
//! a starting point and an architecture: initialisers are parameters, gradients flow, and trained weights go back
//! into the same file. Burn's types stay inside this crate: its API uses [`Array`]s in host memory and ONNX files.

mod array;
pub mod base;
pub mod code;
pub mod data;
mod device;
mod distil;
mod error;
pub mod evaluate;
mod file;
pub mod fit;
mod graph;
mod groups;
mod loss;
pub mod matrix;
mod network;
mod optimise;
pub mod parity;
pub mod stand_in;

pub use array::Array;
pub use device::Device;
pub use distil::{Augmentation, Marks, Teacher};
pub use error::Error;
pub use graph::{Host, Problem};
pub use loss::Loss;
pub use network::{Gradients, Network};
pub use optimise::{Course, Decay, Rate};
