//! Base models: networks for common tasks, built as ONNX graphs and trained from labels.
//!
//! One file per architecture. To add one: a file with a `build` function, and one line in the table.

mod boxes;
mod bytes;
mod lenet;
mod mlp;
mod residual;
mod speech;
mod train;
mod vgg;

pub use train::{Base, TrainedBase, accuracy, train, tune};

use parm_parity_models::onnx::Model;

use crate::Error;

/// The sizes of a base model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Dimensions of one row.
    pub dims: Vec<usize>,
    /// Values of one prediction: classes, or numbers to regress.
    pub outputs: usize,
    /// Seed of the initial weights.
    pub seed: u64,
}

impl Shape {
    /// Channels, height and width of images that are at least `least` pixels high and wide.
    fn image(&self, name: &'static str, least: usize, wanted: &'static str) -> Result<[usize; 3], Error> {
        match self.dims[..] {
            [channels, height, width] if height >= least && width >= least => Ok([channels, height, width]),
            _ => Err(Error::BaseInput { name, dims: self.dims.clone(), wanted }),
        }
    }
}

type Build = fn(&Shape) -> Result<Model, Error>;

/// Architectures by name.
const TABLE: &[(&str, Build)] = &[
    ("boxes", boxes::build),
    ("bytes", bytes::build),
    ("lenet", lenet::build),
    ("mlp", mlp::build),
    ("resnet-small", residual::small),
    ("resnet18", residual::eighteen),
    ("speech", speech::build),
    ("vgg11", vgg::build),
];

/// Builds the architecture called `name`.
pub fn build(name: &str, shape: &Shape) -> Result<Model, Error> {
    let found = TABLE.iter().find(|(known, _)| *known == name);
    let (_, build) =
        found.ok_or_else(|| Error::UnknownBase { name: name.into(), known: names().join(", ") })?;
    build(shape)
}

/// The names of all architectures.
pub fn names() -> Vec<&'static str> {
    TABLE.iter().map(|(name, _)| *name).collect()
}
