//! Random inputs for trial runs of models, and the comparison of an engine's answers with those of the same file run in
//! another way, before the model serves.
//!
//! *Problem.* An engine's graph optimisation can be wrong for a pattern that its tests lack. The answers then look
//! healthy: right shape, finite, status 200.
//!
//! *Choice.* A few made-up rows run on the engine as it serves and on references: the engine without its graph
//! optimisation, for tract also ONNX Runtime if it is installed, and for a card only ONNX Runtime on the CPU. A model whose
//! answers differ by more than rounding on most rows, or that fails where a reference answers, is refused.
//!
//! *Not compared.* Rows that the reference rejects, models that draw random numbers, and files that would take too long or
//! too much memory to load twice.
//!
//! Sizes and values of random rows are guesses, because a signature does not say which of them a model accepts: an image
//! network may need 32 pixels, and token ids must be in the vocabulary. Small whole numbers are valid for nearly all models.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use parm_parity_models::bundle::floats;
use parm_parity_models::onnx::{Limits, Model as File};
use parm_protocol::{DataType, Shape, Tensor};
use parm_workload::Random;

use super::{Declared, Engine, Model, Signature, guarded};
use crate::{EngineConfig, Error};

/// The most elements of one row of an input, and of one with open dimensions of more than one: a file may declare many.
const MOST: usize = 1 << 24;
const MOST_OPEN: usize = 1 << 22;

/// The range of the values of a draw.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draw {
    /// Floats from 0 to 1, whole numbers 0 and 1.
    Positive,
    /// Normal floats, whole numbers 1 and 2.
    Normal,
    /// The same; the second row has the opposite signs and twice the size. A branch on the sign of a sum over all rows
    /// is another one for the first row alone.
    Opposite,
    /// Normal floats, whole numbers 1 and 2, which are valid tokens and lengths, any bytes, true and empty texts.
    Usual,
}

/// Inputs of which two rows differ in every float and in the first whole number; `None` if they would be too large. `first` is
/// the size of open first dimensions, `open` that of the others.
pub(crate) fn drawn(
    signature: &Signature,
    first: usize,
    open: usize,
    (draw, seed): (Draw, u64),
) -> Option<Vec<Tensor>> {
    let mut random = Random::of(seed, [open as u64, draw as u64]);
    let mut inputs = Vec::new();
    for input in &signature.inputs {
        let size = |(axis, dim): (usize, &i64)| match usize::try_from(*dim) {
            Ok(dim) => dim,
            Err(_) if axis == 0 => first,
            Err(_) => open,
        };
        let shape: Shape = input.shape.iter().enumerate().map(size).collect();
        let count = shape.iter().fold(1usize, |size, dim| size.saturating_mul(*dim));
        let is_open = open > 1 && input.shape.iter().skip(1).any(|dim| *dim < 0);
        let most = if is_open { MOST_OPEN } else { MOST };
        if count > first.max(1) * most {
            return None;
        }
        let data = values(input.datatype, count, draw, &mut random);
        inputs.push(Tensor::new(input.datatype, shape, data.into()).ok()?);
    }
    Some(inputs)
}

fn values(datatype: DataType, count: usize, draw: Draw, random: &mut Random) -> Vec<u8> {
    let mut data = Vec::with_capacity(count * datatype.size().unwrap_or(5));
    let second = count.div_ceil(2);
    let mut before: Vec<f64> = Vec::with_capacity(count);
    for at in 0..count {
        let float = match draw {
            Draw::Positive => random.unit(),
            Draw::Opposite if at >= second => -2.0 * before[at - second],
            Draw::Normal | Draw::Opposite | Draw::Usual => random.normal(),
        };
        before.push(float);
        // The first number of the second row is not that of the first.
        let whole = match at {
            0 => 1,
            at if 2 * at == count => 0,
            _ => random.below(2),
        };
        let whole = whole as u8 + u8::from(draw != Draw::Positive);
        match datatype {
            DataType::Bool if draw == Draw::Usual => data.push(1),
            DataType::Uint8 | DataType::Int8 if draw == Draw::Usual => data.push(random.below(256) as u8),
            DataType::Bytes if draw == Draw::Usual => data.extend([0; 4]),
            datatype => push(&mut data, datatype, float, whole),
        }
    }
    data
}

/// Appends an element: a float, or a small whole number.
fn push(data: &mut Vec<u8>, datatype: DataType, float: f64, whole: u8) {
    match datatype {
        DataType::Bool => data.push(whole & 1),
        DataType::Fp16 => data.extend(f16::from_f64(float).to_le_bytes()),
        DataType::Bf16 => data.extend(bf16::from_f64(float).to_le_bytes()),
        DataType::Fp32 => data.extend((float as f32).to_le_bytes()),
        DataType::Fp64 => data.extend(float.to_le_bytes()),
        DataType::Bytes => data.extend([1, 0, 0, 0, b'a' + whole]),
        // A small number has the same first byte in every integer type.
        integer => {
            data.push(whole);
            data.resize(data.len() + integer.size().unwrap_or(1) - 1, 0);
        }
    }
}

/// A difference that is allowed, as a share of the largest value and in addition.
pub(crate) type Allowed = (f64, f64);

/// Largest difference of numbers near zero.
pub(crate) const NEAR_ZERO: f64 = 1e-6;
/// Largest difference of 16-bit floats by rounding.
const ROUNDING_16: f64 = 2e-2;

/// Whether anything but NaN was compared; an error if the tensors differ by more than is allowed. Values other than floats must
/// be equal.
pub(crate) fn same(one: &Tensor, other: &Tensor, (share, least): Allowed) -> Result<bool, ()> {
    if one.shape() != other.shape() {
        return Err(());
    }
    let (Some(a), Some(b)) = (floats(one), floats(other)) else {
        return if one.data() == other.data() { Ok(true) } else { Err(()) };
    };
    let share = match one.datatype() {
        DataType::Fp16 | DataType::Bf16 => share.max(ROUNDING_16),
        _ => share,
    };
    let finite = b.iter().filter(|value| value.is_finite());
    let allowed = share * f64::from(finite.fold(0f32, |most, value| most.max(value.abs()))) + least;
    let close =
        |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan()) || f64::from(a - b).abs() <= allowed;
    if a.iter().zip(&*b).all(close) { Ok(b.iter().any(|value| !value.is_nan())) } else { Err(()) }
}

/// The distance of two tensors as a share of their size; of tensors without floats, the share of different elements.
pub(crate) fn distance(a: &Tensor, b: &Tensor) -> f64 {
    if a.shape() != b.shape() || a.datatype() != b.datatype() {
        return f64::INFINITY;
    }
    let (Some(x), Some(y)) = (floats(a), floats(b)) else {
        let each = (a.data().len() / a.len().max(1)).max(1);
        let pairs = a.data().chunks(each).zip(b.data().chunks(each));
        return pairs.filter(|(a, b)| a != b).count() as f64 / a.len().max(1) as f64;
    };
    let (mut apart, mut sizes) = (0.0, [1e-12; 2]);
    for (&x, &y) in x.iter().zip(&*y) {
        let (x, y) = (f64::from(x), f64::from(y));
        let is_same = x == y || (x.is_nan() && y.is_nan());
        apart += if is_same { 0.0 } else { (x - y).powi(2) };
        if !is_same || x.is_finite() {
            sizes = [sizes[0] + x * x, sizes[1] + y * y];
        }
    }
    let apart = (apart / sizes[0].max(sizes[1])).sqrt();
    if apart.is_finite() { apart } else { f64::INFINITY }
}

/// Rows to compare.
const ROWS: u64 = 3;
/// Sizes for dynamic dimensions other than the batch, in the order in which they are tried.
const SIZES: [usize; 2] = [8, 1];
/// Largest file that is loaded twice.
const MOST_BYTES: u64 = 512 << 20;
/// After this time no further row is compared.
const PATIENCE: Duration = Duration::from_secs(2);
/// The largest difference that rounding explains, as a share of the answer's size: in floats, and with 8-bit values, of
/// which one that is rounded the other way changes all that follow.
const ROUNDING: f64 = 0.02;
const ROUNDING_OF_8_BITS: f64 = 0.2;

/// Refuses a model whose answers differ from those that the same file gives in another way.
pub fn compare(
    engine: &dyn Engine,
    model: &mut dyn Model,
    path: &Path,
    config: &EngineConfig,
) -> Result<(), Error> {
    if fs::metadata(path).is_ok_and(|file| file.len() > MOST_BYTES) {
        return Ok(());
    }
    let allowed = if has_8_bits(path) { ROUNDING_OF_8_BITS } else { ROUNDING };
    for (name, other) in engine.references(config) {
        let reference = guarded(|| other.load(path, config));
        let Ok(mut reference) = reference.inspect_err(|error| tracing::debug!(name, %error, "not compared"))
        else {
            continue;
        };
        if let Some(difference) = difference(model, &mut *reference, allowed) {
            return Err(Error::Untrue { path: path.into(), name, difference });
        }
    }
    Ok(())
}

/// The difference between two models' answers, if it is more than `allowed` on most rows.
fn difference(model: &mut dyn Model, reference: &mut dyn Model, allowed: f64) -> Option<String> {
    let signature = model.signature().clone();
    let started = Instant::now();
    for size in SIZES {
        let (mut compared, mut different) = (0, Vec::new());
        for row in 0..ROWS {
            let Some(inputs) = drawn(&signature, 1, size, (Draw::Usual, row)) else { break };
            let Ok(expected) = guarded(|| reference.run(&inputs)) else { break };
            let answer = match guarded(|| model.run(&inputs)) {
                Ok(answer) => answer,
                Err(error) => return Some(format!("it fails where the other answers: {error}")),
            };
            if row == 0 && guarded(|| reference.run(&inputs)).is_ok_and(|again| again != expected) {
                // It draws random numbers.
                return None;
            }
            compared += 1;
            different.extend(farthest(&signature.outputs, &expected, &answer, allowed));
            if started.elapsed() > PATIENCE {
                break;
            }
        }
        if compared > 0 {
            // A row alone may be rounded to another side of a threshold inside of the model.
            let is_most = 2 * different.len() > compared;
            let most = different.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| is_most);
            return most.map(|(name, apart)| match apart.is_finite() {
                true => format!("output '{name}' differs by {:.0} % of its size", 100.0 * apart),
                false => format!("output '{name}' differs in shape or is not finite"),
            });
        }
    }
    None
}

/// The output that differs most, if one differs by more than `allowed`.
fn farthest(
    declared: &[Declared],
    expected: &[Tensor],
    answer: &[Tensor],
    allowed: f64,
) -> Option<(String, f64)> {
    let pairs = declared.iter().zip(expected.iter().zip(answer));
    let apart = pairs.map(|(declared, (a, b))| (declared.name.clone(), distance(a, b)));
    apart.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, apart)| *apart > allowed)
}

/// Whether a graph has 8-bit values. One that cannot be read is compared strictly.
fn has_8_bits(path: &Path) -> bool {
    let is_one =
        |op: &String| op.contains("QuantizeLinear") || op.contains("Integer") || op.starts_with("QLinear");
    operators(path).iter().any(is_one)
}

/// The operators of the file's main graph; none if it cannot be read.
pub(super) fn operators(path: &Path) -> BTreeSet<String> {
    let Ok(file) = File::open(path, &Limits::default()) else { return BTreeSet::new() };
    let nodes = file.proto().graph.iter().flat_map(|graph| &graph.node);
    nodes.map(|node| node.op_type.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Declared;

    fn signature(datatype: DataType, shape: &[i64]) -> Signature {
        let input = Declared { name: "x".into(), datatype, shape: shape.into() };
        Signature { inputs: vec![input], outputs: vec![] }
    }

    #[test]
    fn rows_differ_in_every_datatype() {
        for datatype in DataType::ALL {
            for (open, draw) in [(1, Draw::Positive), (3, Draw::Normal)] {
                let inputs = drawn(&signature(datatype, &[-1, -1]), 2, open, (draw, 1)).unwrap();
                assert_eq!(inputs[0].shape(), [2, open]);
                let rows = [0, 1].map(|row| inputs[0].slice_rows(row, 1).unwrap());
                assert_ne!(rows[0].data(), rows[1].data(), "{datatype}");
            }
        }
    }

    #[test]
    fn inputs_that_would_not_fit_into_memory_are_not_drawn() {
        let is_drawn = |shape: &[i64], open| {
            drawn(&signature(DataType::Uint8, shape), 1, open, (Draw::Usual, 1)).map(|inputs| inputs[0].len())
        };
        assert_eq!(is_drawn(&[-1, 1 << 40], 1), None);
        // Twelve open dimensions of eight would take eight gigabytes.
        assert_eq!((is_drawn(&[-1; 12], 8), is_drawn(&[-1; 9], 8)), (None, None));
        assert_eq!((is_drawn(&[-1; 12], 1), is_drawn(&[-1; 3], 8)), (Some(1), Some(64)));
    }
}
