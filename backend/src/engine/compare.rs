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

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use parm_parity_models::onnx::{Limits, Model as File};
use parm_protocol::Tensor;

use super::trial::{Draw, distance, drawn};
use super::{Declared, Engine, Model, guarded};
use crate::{EngineConfig, Error};

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
