//! Base models: networks for common tasks, built as ONNX graphs and trained from labels.
//!
//! To add an architecture: a function in `nets.rs`, and one line in the table.

mod nets;
mod train;

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
            _ => Err(self.refused(name, wanted)),
        }
    }

    fn refused(&self, name: &'static str, wanted: &'static str) -> Error {
        Error::BaseInput { name, dims: self.dims.clone(), wanted }
    }
}

type Build = fn(&Shape) -> Result<Model, Error>;

/// Architectures by name.
const TABLE: &[(&str, Build)] = &[
    ("boxes", nets::boxes),
    ("bytes", nets::bytes),
    ("lenet", nets::lenet),
    ("mlp", nets::mlp),
    ("resnet-small", nets::resnet_small),
    ("resnet18", nets::resnet18),
    ("speech", nets::speech),
    ("vgg11", nets::vgg11),
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
