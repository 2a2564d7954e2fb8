//! Samples: rows of a data set in memory.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use parm_arrays::Format;
use parm_parity_models::bundle::Preprocessing;
use parm_protocol::{DataType, Tensor};
use parm_random::Random;

use super::source::content;
use super::{Limit, Parts, Unusable};
use crate::file::write;
use crate::{Array, Error};

/// The largest integer below which every integer is an exact float.
const EXACT: f64 = 16_777_216.0;

/// Rows of equal shape, with classes, with numbers to predict, or with neither.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// The rows; the first dimension counts them.
    pub inputs: Array<f32>,
    /// The inputs that are joined in a row.
    pub parts: Parts,
    /// A class for each row.
    pub labels: Option<Vec<usize>>,
    /// Numbers to predict for each row, such as a box; the first dimension counts them.
    pub values: Option<Array<f32>>,
}

impl Samples {
    /// Combines rows with labels, of which there must be equally many.
    pub fn new(inputs: Array<f32>, labels: Option<Vec<usize>>) -> Result<Self, Unusable> {
        let rows = count(&inputs);
        if let Some(labels) = labels.as_ref().filter(|labels| labels.len() != rows) {
            return Err(Unusable::LabelCount { rows, labels: labels.len() });
        }
        finite(&inputs)?;
        Ok(Self { inputs, parts: Parts::default(), labels, values: None })
    }

    /// Combines rows with numbers to predict.
    pub fn with_values(inputs: Array<f32>, values: Array<f32>) -> Result<Self, Unusable> {
        if count(&values) != count(&inputs) {
            return Err(Unusable::LabelCount { rows: count(&inputs), labels: count(&values) });
        }
        finite(&values)?;
        Ok(Self { values: Some(values), ..Self::new(inputs, None)? })
    }

    /// Reads images and labels of the MNIST family, plain or gzipped: pixels 0..255 become 0..1, rows `[1, h, w]`.
    pub fn idx(images: &Path, labels: Option<&Path>, limit: Limit) -> Result<Self, Unusable> {
        let pixels = bytes(images, limit)?;
        let [count, height, width] = *pixels.shape() else {
            return Err(Unusable::Dimensions {
                path: images.into(),
                expected: 3,
                actual: pixels.shape().into(),
            });
        };
        let scaled = pixels.data().iter().map(|&byte| f32::from(byte) / 255.0).collect();
        let inputs = Array::new(vec![count, 1, height, width], scaled).expect("as many pixels as before");
        let labels = labels.map(|path| Ok::<_, Unusable>((path, bytes(path, limit)?))).transpose()?;
        let labels = labels.map(|(path, labels)| match labels.shape() {
            [_] => Ok(labels.data().iter().map(|&label| usize::from(label)).collect()),
            shape => Err(Unusable::Dimensions { path: path.into(), expected: 1, actual: shape.into() }),
        });
        Self::new(inputs, labels.transpose()?)
    }

    /// Reads a numpy array of floats or bytes, and one of labels: a list of classes, or a matrix of numbers to
    /// predict.
    pub fn npy(rows: &Path, labels: Option<&Path>, limit: Limit) -> Result<Self, Unusable> {
        Self::npys(&[rows], labels, limit)
    }

    /// Reads one array per input of a model, and labels as [`npy`](Self::npy) does.
    pub fn npys(inputs: &[&Path], labels: Option<&Path>, limit: Limit) -> Result<Self, Unusable> {
        let open = |path: &Path| Ok::<_, Unusable>(Format::Npy.parse(path, content(path, limit)?)?);
        let read = |path: &Path| floats(path, &open(path)?);
        let arrays = inputs.iter().map(|path| {
            let tensor = open(path)?;
            let array = floats(path, &tensor)?;
            exact(path, tensor.datatype(), &array)?;
            Ok(array.map(|&value| value as f32))
        });
        let arrays: Vec<Array<f32>> = arrays.collect::<Result<_, Unusable>>()?;
        let counts = arrays.iter().map(count).collect();
        let (rows, parts) = Parts::join(arrays).ok_or(Unusable::InputCounts { counts })?;
        let labels = labels.map(|path| Ok::<_, Unusable>((path, read(path)?))).transpose()?;
        Ok(Self { parts, ..Self::labelled(rows, labels)? })
    }

    /// Rows with labels of any kind: a list of integers holds classes, a matrix holds numbers to predict.
    pub(super) fn labelled(
        inputs: Array<f32>,
        labels: Option<(&Path, Array<f64>)>,
    ) -> Result<Self, Unusable> {
        match labels {
            None => Self::new(inputs, None),
            Some((_, values)) if values.shape().len() > 1 => {
                Self::with_values(inputs, values.map(|&value| value as f32))
            }
            Some((path, labels)) => {
                let is_class = |value: f64| (0.0..EXACT).contains(&value) && value.fract() == 0.0;
                let whole = |&value: &f64| is_class(value).then_some(value as usize);
                let classes: Option<Vec<usize>> = labels.data().iter().map(whole).collect();
                let classes = classes.ok_or_else(|| Unusable::Labels { path: path.into() })?;
                Self::new(inputs, Some(classes))
            }
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        count(&self.inputs)
    }

    /// Whether there are zero rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of rows of each class.
    pub fn classes(&self) -> Vec<usize> {
        let labels = self.labels.as_deref().unwrap_or_default();
        let mut counts = vec![0; labels.iter().max().map_or(0, |largest| largest + 1)];
        labels.iter().for_each(|&label| counts[label] += 1);
        counts
    }

    /// The number of classes; each must have a row to learn from.
    pub fn complete_classes(&self) -> Result<usize, Unusable> {
        let labels = self.labels.as_deref().unwrap_or_default();
        if let Some(&largest) = labels.iter().max().filter(|&&largest| largest >= labels.len()) {
            // Checked before counting: a huge label would need a huge table.
            let seen: BTreeSet<usize> = labels.iter().copied().collect();
            let class = (0..=largest).find(|class| !seen.contains(class)).unwrap_or(largest);
            return Err(Unusable::EmptyClass { class, classes: largest.saturating_add(1) });
        }
        let counts = self.classes();
        match counts.iter().position(|&count| count == 0) {
            Some(class) => Err(Unusable::EmptyClass { class, classes: counts.len() }),
            None => Ok(counts.len()),
        }
    }

    /// Copies these rows, in this order.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            inputs: self.inputs.rows(rows),
            parts: self.parts.clone(),
            labels: self.labels.as_ref().map(|labels| rows.iter().map(|&row| labels[row]).collect()),
            values: self.values.as_ref().map(|values| values.rows(rows)),
        }
    }

    /// Consecutive rows.
    pub fn range(&self, rows: Range<usize>) -> Result<Self, Unusable> {
        if rows.start >= rows.end || rows.end > self.len() {
            return Err(Unusable::Range { from: rows.start, to: rows.end, rows: self.len() });
        }
        Ok(self.select(&rows.collect::<Vec<_>>()))
    }

    /// Splits the rows into two parts, the second of `held_out` random rows; depends on the seed only.
    pub fn split(&self, held_out: usize, seed: u64) -> Result<(Self, Self), Unusable> {
        let rows = self.len();
        if held_out == 0 || held_out >= rows {
            return Err(Unusable::HeldOut { held_out, rows });
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

/// The content of an idx file: pixels or classes.
fn bytes(path: &Path, limit: Limit) -> Result<Tensor, Unusable> {
    let tensor = Format::Idx.parse(path, content(path, limit)?)?;
    match tensor.datatype() {
        DataType::Uint8 => held(path, &tensor).map(|()| tensor.clone()),
        other => {
            let detail = format!("its elements are {other}: bytes are supported");
            Err(Unusable::Format { path: path.into(), expected: "an idx file of images or labels", detail })
        }
    }
}

/// Converts elements of any numeric type; `path` is for messages.
pub(super) fn floats(path: &Path, tensor: &Tensor) -> Result<Array<f64>, Unusable> {
    let numbers = parm_arrays::numbers(tensor).ok_or_else(|| {
        let detail =
            format!("elements of type {}: floats, integers and bytes are supported", tensor.datatype());
        Unusable::Format { path: path.into(), expected: "an npy file of numbers", detail }
    })?;
    held(path, tensor)?;
    Ok(Array::new(tensor.shape().into(), numbers.collect()).expect("the length was compared"))
}

/// Rejects an array without elements. A few bytes can declare more rows than memory can count.
fn held(path: &Path, tensor: &Tensor) -> Result<(), Unusable> {
    if !tensor.data().is_empty() {
        return Ok(());
    }
    let detail = format!("its shape {:?} has no elements", tensor.shape());
    Err(Unusable::Format { path: path.into(), expected: "an array of rows", detail })
}

/// Rejects integers that are not exact as floats: word ids, times, hashes.
fn exact(path: &Path, datatype: DataType, array: &Array<f64>) -> Result<(), Unusable> {
    let is_float = matches!(datatype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64);
    match array.data().iter().find(|value| !is_float && value.abs() > EXACT) {
        Some(value) => Err(Unusable::Format {
            path: path.into(),
            expected: "an array that training can hold",
            detail: format!("the integer {value} is beyond {EXACT}, the limit of exact integers in floats"),
        }),
        None => Ok(()),
    }
}

fn count(array: &Array<f32>) -> usize {
    array.shape().first().copied().unwrap_or(0)
}

fn finite(array: &Array<f32>) -> Result<(), Unusable> {
    let width = (array.data().len() / count(array).max(1)).max(1);
    match array.data().iter().position(|value| !value.is_finite()) {
        Some(at) => Err(Unusable::NotFinite { row: at / width }),
        None => Ok(()),
    }
}

/// `(value * scale - mean) / deviation`, channel by channel of `rows`, `[rows, channels, ..]`.
pub fn normalise(rows: &mut Array<f32>, with: &Preprocessing) -> Result<(), Unusable> {
    let channels = rows.shape().get(1).copied().unwrap_or(1);
    let numbers = with.mean.iter().chain(&with.deviation).chain([&with.scale]);
    if !numbers.copied().all(f32::is_finite) || with.deviation.contains(&0.0) {
        return Err(Unusable::Preprocessing);
    }
    for values in [&with.mean, &with.deviation] {
        if values.len() != 1 && values.len() != channels {
            return Err(Unusable::Channels { row: rows.shape()[1..].to_vec(), channels: values.len() });
        }
    }
    let of = |values: &[f32], channel: usize| if values.len() == 1 { values[0] } else { values[channel] };
    let plane: usize = rows.shape().iter().skip(2).product();
    for (at, values) in rows.data_mut().chunks_mut(plane.max(1)).enumerate() {
        let (mean, deviation) = (of(&with.mean, at % channels), of(&with.deviation, at % channels));
        values.iter_mut().for_each(|value| *value = (*value * with.scale - mean) / deviation);
    }
    Ok(())
}

const LABELS: &str = "labels.npy";
const VALUES: &str = "values.npy";

impl Samples {
    /// Writes `inputs.npy` (numbered files for several inputs), and `labels.npy` or `values.npy` if there are any,
    /// each atomically. Returns the paths.
    pub fn save(&self, folder: &Path) -> Result<Vec<PathBuf>, Error> {
        let mut files: Vec<(String, Tensor)> = Vec::new();
        let inputs = self.parts.split(self.inputs.clone()).unwrap_or_default();
        let several = inputs.len() > 1;
        files.extend(inputs.iter().enumerate().map(|(at, input)| {
            (if several { format!("inputs-{}.npy", at + 1) } else { "inputs.npy".into() }, stored(input))
        }));
        if let Some(labels) = &self.labels {
            let classes = labels.iter().flat_map(|&label| (label as i64).to_le_bytes()).collect::<Vec<u8>>();
            files.push((LABELS.into(), tensor(DataType::Int64, &[labels.len()], classes)));
        }
        if let Some(values) = &self.values {
            files.push((VALUES.into(), stored(values)));
        }
        // Labels of earlier rows must not remain next to these rows.
        let stale = [LABELS, VALUES].into_iter().filter(|name| files.iter().all(|(file, _)| file != name));
        if let Some(path) = stale.map(|name| folder.join(name)).find(|path| path.exists()) {
            let message = "it belongs to other rows: remove it, or name another folder".into();
            return Err(Error::Write { path, message });
        }
        let put = |(name, tensor): (String, Tensor)| {
            let path = folder.join(name);
            write(&path, &parm_arrays::npy(&tensor).expect("floats and integers can be stored"))?;
            Ok(path)
        };
        files.into_iter().map(put).collect()
    }
}

fn stored(array: &Array<f32>) -> Tensor {
    let bytes = array.data().iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(DataType::Fp32, array.shape(), bytes)
}

fn tensor(datatype: DataType, shape: &[usize], bytes: Vec<u8>) -> Tensor {
    Tensor::new(datatype, shape, bytes.into()).expect("as many elements as before")
}
