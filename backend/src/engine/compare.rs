//! Compares an engine's answers with those of the same file run in another way, before the model serves.
//!
//! *Problem.* An engine's graph optimisation can be wrong for a pattern that its tests lack. The answers then look
//! healthy: right shape, finite, status 200.
//!
//! *Choice.* A few made-up rows run on the engine as it serves, without its graph optimisation, and on ONNX Runtime if
//! the engine is tract and the library is installed. On a card they run on the CPU as well, as one piece. A model whose
//! answers differ by more than rounding is refused.
//!
//! *Cold start.* Rows that the model rejects, models that draw random numbers and files that take too long or too much
//! memory to load twice are not compared.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use parm_parity_models::onnx::{Limits, Model as File};
use parm_protocol::{DataType, Shape, Tensor};
use parm_workload::Random;

use super::{Declared, Engine, Model, Options, Signature, guarded};
use crate::Error;

/// Rows to compare.
const ROWS: u64 = 3;
/// Sizes for dynamic dimensions other than the batch, in the order in which they are tried.
const SIZES: [usize; 2] = [8, 1];
/// Most elements of an input with open dimensions of more than one: a file may declare many of them.
const MOST_OPEN: usize = 1 << 22;
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
    options: &Options,
) -> Result<(), Error> {
    if fs::metadata(path).is_ok_and(|file| file.len() > MOST_BYTES) {
        return Ok(());
    }
    let allowed = if has_8_bits(path) { ROUNDING_OF_8_BITS } else { ROUNDING };
    for (name, other) in engine.references(options) {
        let reference = guarded(|| other.load(path, options));
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
            let Ok(inputs) = made_up(&signature, size, row) else { break };
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

/// The distance of two tensors as a share of their size; of tensors without floats, the share of different elements.
fn distance(a: &Tensor, b: &Tensor) -> f64 {
    if a.shape() != b.shape() || a.datatype() != b.datatype() {
        return f64::INFINITY;
    }
    let (Some(x), Some(y)) = (floats(a), floats(b)) else {
        let each = a.data().len() / a.len().max(1);
        let pairs = a.data().chunks(each.max(1)).zip(b.data().chunks(each.max(1)));
        return pairs.filter(|(a, b)| a != b).count() as f64 / a.len().max(1) as f64;
    };
    let (mut apart, mut sizes) = (0.0, [1e-12; 2]);
    for (x, y) in x.into_iter().zip(y) {
        if x == y || (x.is_nan() && y.is_nan()) {
            sizes = if x.is_finite() { [sizes[0] + x * x, sizes[1] + y * y] } else { sizes };
            continue;
        }
        apart += (x - y).powi(2);
        sizes = [sizes[0] + x * x, sizes[1] + y * y];
    }
    let apart = (apart / sizes[0].max(sizes[1])).sqrt();
    if apart.is_finite() { apart } else { f64::INFINITY }
}

fn floats(tensor: &Tensor) -> Option<Vec<f64>> {
    let two = || tensor.data().as_chunks::<2>().0.iter().copied();
    Some(match tensor.datatype() {
        DataType::Fp32 => tensor.as_f32().ok()?.iter().map(|&value| f64::from(value)).collect(),
        DataType::Fp64 => tensor.data().as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
        DataType::Fp16 => two().map(|bytes| f16::from_le_bytes(bytes).to_f64()).collect(),
        DataType::Bf16 => two().map(|bytes| bf16::from_le_bytes(bytes).to_f64()).collect(),
        _ => return None,
    })
}

/// A row of made-up inputs: floats around zero, any bytes, and small whole numbers, which are valid tokens, masks and
/// lengths.
fn made_up(signature: &Signature, size: usize, row: u64) -> Result<Vec<Tensor>, Error> {
    // Rejects inputs that are too large.
    signature.blank(1)?;
    let made = signature.inputs.iter().enumerate().map(|(at, declared)| {
        let dims = declared.shape.iter().enumerate().map(|(axis, &dim)| match usize::try_from(dim) {
            Ok(dim) => dim,
            Err(_) if axis == 0 => 1,
            Err(_) => size,
        });
        let shape: Shape = dims.collect();
        let count = shape.iter().fold(1usize, |product, &dim| product.saturating_mul(dim));
        if size > 1 && count > MOST_OPEN {
            return Err(Error::Run {
                message: format!("input '{}' has too many open dimensions", declared.name),
            });
        }
        let mut draw = Random::of(row, [at as u64]);
        let data: Vec<u8> = match declared.datatype {
            DataType::Fp32 => (0..count).flat_map(|_| (draw.normal() as f32).to_le_bytes()).collect(),
            DataType::Fp64 => (0..count).flat_map(|_| draw.normal().to_le_bytes()).collect(),
            DataType::Fp16 => (0..count).flat_map(|_| f16::from_f64(draw.normal()).to_le_bytes()).collect(),
            DataType::Bf16 => (0..count).flat_map(|_| bf16::from_f64(draw.normal()).to_le_bytes()).collect(),
            DataType::Uint8 | DataType::Int8 => (0..count).map(|_| draw.below(256) as u8).collect(),
            DataType::Bool => vec![1; count],
            DataType::Bytes => vec![0; 4 * count],
            whole => {
                let size = whole.size().unwrap_or(4);
                let number = |_| (1 + draw.below(2)).to_le_bytes().into_iter().take(size);
                (0..count).flat_map(number).collect()
            }
        };
        Tensor::new(declared.datatype, shape, data.into())
            .map_err(|error| Error::Run { message: error.to_string() })
    });
    made.collect()
}

/// Whether a graph has 8-bit values. One that cannot be read is compared strictly.
fn has_8_bits(path: &Path) -> bool {
    has_operator(path, |op| {
        op.contains("QuantizeLinear") || op.contains("Integer") || op.starts_with("QLinear")
    })
}

/// Whether the file's main graph has such an operator; not if it cannot be read.
pub(super) fn has_operator(path: &Path, is_one: impl Fn(&str) -> bool) -> bool {
    let Ok(file) = File::open(path, &Limits::default()) else { return false };
    let mut nodes = file.proto().graph.iter().flat_map(|graph| &graph.node);
    nodes.any(|node| is_one(&node.op_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_with_many_open_dimensions_is_not_made_up() {
        let rank = |rank| {
            let x = Declared { name: "x".into(), datatype: DataType::Uint8, shape: vec![-1; rank] };
            Signature { inputs: vec![x], outputs: vec![] }
        };
        // Twelve would take eight gigabytes.
        assert!(made_up(&rank(9), 8, 0).is_err());
        assert_eq!(made_up(&rank(12), 1, 0).unwrap()[0].len(), 1);
        assert_eq!(made_up(&rank(3), 8, 0).unwrap()[0].shape(), [1, 8, 8]);
    }
}
