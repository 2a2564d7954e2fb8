//! Examples in memory.

use std::ops::Range;
use std::path::Path;

use parm_arrays::Format;
use parm_protocol::{DataType, Tensor};
use parm_random::Random;

use super::cifar::{self, Cifar};
use super::file::Limit;
use super::{Error, file};
use crate::Array;

/// Examples: rows of equal shape, with classes, with numbers to predict, or with neither.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// The rows; the first dimension counts them.
    pub inputs: Array<f32>,
    /// A class for each row.
    pub labels: Option<Vec<usize>>,
    /// Numbers to predict for each row, such as a box; the first dimension counts them.
    pub values: Option<Array<f32>>,
}

impl Samples {
    /// Puts rows and labels together; there must be as many of one as of the other.
    pub fn new(inputs: Array<f32>, labels: Option<Vec<usize>>) -> Result<Self, Error> {
        let rows = count(&inputs);
        if let Some(labels) = labels.as_ref().filter(|labels| labels.len() != rows) {
            return Err(Error::LabelCount { rows, labels: labels.len() });
        }
        finite(&inputs)?;
        Ok(Self { inputs, labels, values: None })
    }

    /// Puts rows and numbers to predict together.
    pub fn with_values(inputs: Array<f32>, values: Array<f32>) -> Result<Self, Error> {
        if count(&values) != count(&inputs) {
            return Err(Error::LabelCount { rows: count(&inputs), labels: count(&values) });
        }
        finite(&values)?;
        Ok(Self { values: Some(values), ..Self::new(inputs, None)? })
    }

    /// Reads images and labels of the MNIST family, plain or gzipped: pixels 0..255 become 0..1, rows `[1, h, w]`.
    pub fn idx(images: &Path, labels: Option<&Path>, limit: Limit) -> Result<Self, Error> {
        let pixels = bytes(images, limit)?;
        let [count, height, width] = *pixels.shape() else {
            return Err(Error::Dimensions {
                path: images.into(),
                expected: 3,
                actual: pixels.shape().into(),
            });
        };
        let scaled = pixels.data().iter().map(|&byte| f32::from(byte) / 255.0).collect();
        let inputs = Array::new(vec![count, 1, height, width], scaled).expect("as many pixels as before");
        let labels = labels.map(|path| Ok::<_, Error>((path, bytes(path, limit)?))).transpose()?;
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

    /// Reads an array of floats or bytes that numpy saved, and labels that it saved: a list of classes, or a matrix of
    /// numbers to predict.
    pub fn npy(rows: &Path, labels: Option<&Path>, limit: Limit) -> Result<Self, Error> {
        let read = |path: &Path| floats(path, &Format::Npy.parse(path, file::read(path, limit)?)?);
        let inputs = read(rows)?;
        let labels = labels.map(|path| Ok::<_, Error>((path, read(path)?))).transpose()?;
        Self::labelled(inputs, labels)
    }

    /// Rows with labels of any kind: a list of whole numbers is classes, a matrix is numbers to predict.
    pub(super) fn labelled(inputs: Array<f64>, labels: Option<(&Path, Array<f64>)>) -> Result<Self, Error> {
        let inputs = inputs.map(|&value| value as f32);
        match labels {
            None => Self::new(inputs, None),
            Some((_, values)) if values.shape().len() > 1 => {
                Self::with_values(inputs, values.map(|&value| value as f32))
            }
            Some((path, labels)) => {
                let whole = |&value: &f64| (value >= 0.0 && value.fract() == 0.0).then_some(value as usize);
                let classes: Option<Vec<usize>> = labels.data().iter().map(whole).collect();
                let classes = classes.ok_or_else(|| Error::Labels { path: path.into() })?;
                Self::new(inputs, Some(classes))
            }
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        count(&self.inputs)
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many examples there are of each class from 0 on.
    pub fn classes(&self) -> Vec<usize> {
        let labels = self.labels.as_deref().unwrap_or_default();
        let mut counts = vec![0; labels.iter().max().map_or(0, |largest| largest + 1)];
        labels.iter().for_each(|&label| counts[label] += 1);
        counts
    }

    /// The number of classes; each must have an example to learn from.
    pub fn complete_classes(&self) -> Result<usize, Error> {
        let counts = self.classes();
        match counts.iter().position(|&count| count == 0) {
            Some(class) => Err(Error::EmptyClass { class, classes: counts.len() }),
            None => Ok(counts.len()),
        }
    }

    /// The rows with these numbers, in this order.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            inputs: pick(&self.inputs, rows),
            labels: self.labels.as_ref().map(|labels| rows.iter().map(|&row| labels[row]).collect()),
            values: self.values.as_ref().map(|values| pick(values, rows)),
        }
    }

    /// Consecutive rows.
    pub fn range(&self, rows: Range<usize>) -> Result<Self, Error> {
        if rows.start >= rows.end || rows.end > self.len() {
            return Err(Error::Range { from: rows.start, to: rows.end, rows: self.len() });
        }
        Ok(self.select(&rows.collect::<Vec<_>>()))
    }

    /// Two parts without a common row, the second of `held_out` random rows; the same for the same seed.
    pub fn split(&self, held_out: usize, seed: u64) -> Result<(Self, Self), Error> {
        let rows = self.len();
        if held_out == 0 || held_out >= rows {
            return Err(Error::HeldOut { held_out, rows });
        }
        let keys = Random::named(seed, "split").uniforms(1.0, rows);
        let mut order: Vec<usize> = (0..rows).collect();
        order.sort_by(|&a, &b| keys[a].total_cmp(&keys[b]));
        let (train, test) = order.split_at_mut(rows - held_out);
        train.sort_unstable();
        test.sort_unstable();
        Ok((self.select(train), self.select(test)))
    }
}

/// The bytes of an idx file: pixels, or classes.
fn bytes(path: &Path, limit: Limit) -> Result<Tensor, Error> {
    let tensor = Format::Idx.parse(path, file::read(path, limit)?)?;
    match tensor.datatype() {
        DataType::Uint8 => Ok(tensor),
        other => {
            let detail = format!("its elements are {other}: bytes are supported");
            Err(Error::Format { path: path.into(), expected: "an idx file of images or labels", detail })
        }
    }
}

/// Elements of any kind of number; `path` is for messages.
pub(super) fn floats(path: &Path, tensor: &Tensor) -> Result<Array<f64>, Error> {
    let numbers = parm_arrays::numbers(tensor).ok_or_else(|| {
        let detail =
            format!("elements of type {}: floats, integers and bytes are supported", tensor.datatype());
        Error::Format { path: path.into(), expected: "an npy file of numbers", detail }
    })?;
    Ok(Array::new(tensor.shape().into(), numbers.collect()).expect("the length was compared"))
}

fn count(array: &Array<f32>) -> usize {
    array.shape().first().copied().unwrap_or(0)
}

fn finite(array: &Array<f32>) -> Result<(), Error> {
    let width = (array.data().len() / count(array).max(1)).max(1);
    match array.data().iter().position(|value| !value.is_finite()) {
        Some(at) => Err(Error::NotFinite { row: at / width }),
        None => Ok(()),
    }
}

fn pick(array: &Array<f32>, rows: &[usize]) -> Array<f32> {
    let width: usize = array.shape().iter().skip(1).product();
    let mut data = Vec::with_capacity(rows.len() * width);
    rows.iter().for_each(|&row| data.extend_from_slice(&array.data()[row * width..][..width]));
    let mut shape = array.shape().to_vec();
    shape[0] = rows.len();
    Array::new(shape, data).expect("whole rows were copied")
}
