//! Data sets from the files that people have: idx (MNIST and its family), CIFAR's binary batches, npy.
//!
//! Readers check everything that a file says about itself against its length before they believe it, and their errors
//! name the file. No reader downloads anything.

mod cifar;
mod error;
mod file;
mod idx;
mod npy;

pub use cifar::Cifar;
pub use error::Error;
pub use file::{Limit, md5};

use std::path::Path;

use crate::Array;

/// Examples: rows of equal shape, with or without labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// The rows; the first dimension counts them.
    pub inputs: Array<f32>,
    /// A class for each row.
    pub labels: Option<Vec<usize>>,
}

impl Samples {
    /// Puts rows and labels together; there must be as many of one as of the other.
    pub fn new(inputs: Array<f32>, labels: Option<Vec<usize>>) -> Result<Self, Error> {
        let rows = inputs.shape().first().copied().unwrap_or(0);
        if let Some(labels) = labels.as_ref().filter(|labels| labels.len() != rows) {
            return Err(Error::LabelCount { rows, labels: labels.len() });
        }
        let bad = inputs.data().iter().position(|value| !value.is_finite());
        if let Some(at) = bad {
            return Err(Error::NotFinite { row: at / (inputs.data().len() / rows.max(1)).max(1) });
        }
        Ok(Self { inputs, labels })
    }

    /// Reads images and labels of the MNIST family, plain or gzipped: pixels 0..255 become 0..1, rows `[1, h, w]`.
    pub fn idx(images: &Path, labels: Option<&Path>, limit: Limit) -> Result<Self, Error> {
        let pixels = idx::read(images, limit)?;
        let (shape, data) = (pixels.shape(), pixels.data());
        let [count, height, width] = *shape else {
            return Err(Error::Dimensions { path: images.into(), expected: 3, actual: shape.into() });
        };
        let scaled = data.iter().map(|&byte| f32::from(byte) / 255.0).collect();
        let inputs = Array::new(vec![count, 1, height, width], scaled).expect("as many pixels as before");
        let labels = labels.map(|path| Ok::<_, Error>((path, idx::read(path, limit)?))).transpose()?;
        let labels = labels.map(|(path, labels)| match labels.shape() {
            [_] => Ok(labels.data().iter().map(|&label| usize::from(label)).collect()),
            shape => Err(Error::Dimensions { path: path.into(), expected: 1, actual: shape.into() }),
        });
        Self::new(inputs, labels.transpose()?)
    }

    /// Reads CIFAR's binary batches, one after the other: pixels 0..255 become 0..1, rows `[3, 32, 32]`.
    pub fn cifar(batches: &[&Path], kind: Cifar, limit: Limit) -> Result<Self, Error> {
        cifar::read(batches, kind, limit)
    }

    /// Reads an array of floats or bytes that numpy saved, and labels that it saved as integers.
    pub fn npy(rows: &Path, labels: Option<&Path>, limit: Limit) -> Result<Self, Error> {
        let inputs = npy::read(rows, limit)?.map(|&value| value as f32);
        let labels = labels.map(|path| {
            let whole = |&value: &f64| (value >= 0.0 && value.fract() == 0.0).then_some(value as usize);
            let labels: Option<Vec<usize>> = npy::read(path, limit)?.data().iter().map(whole).collect();
            labels.ok_or_else(|| Error::Labels { path: path.into() })
        });
        Self::new(inputs, labels.transpose()?)
    }

    /// How many examples there are of each class from 0 on.
    pub fn classes(&self) -> Vec<usize> {
        let labels = self.labels.as_deref().unwrap_or_default();
        let mut counts = vec![0; labels.iter().max().map_or(0, |largest| largest + 1)];
        labels.iter().for_each(|&label| counts[label] += 1);
        counts
    }
}
