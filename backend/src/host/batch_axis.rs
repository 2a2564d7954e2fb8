//! Shows that the first dimension of a model is a batch: two rows together give what each gives alone.
//!
//! *Problem.* Frontends split requests into rows and workers batch rows of several requests. A variable first dimension
//! need not be a batch: a softmax over it, a sequence length or pairwise similarities give wrong answers when split, and
//! nothing in the file says so.
//!
//! *Choice.* The model is run on two different random rows, together and alone, and on many rows that are copies of these:
//! some models count equal rows, or all. Unless the answers agree, requests stay whole. The same holds if no run succeeds,
//! because then nothing was shown. A dependency that needs certain values, such as a threshold, is not found.
//!
//! *Rejected.* Reading the graph: each operator would need a rule, and a missing rule would be a wrong answer.

use std::time::{Duration, Instant};

use parm_protocol::Tensor;

use super::trial::{Draw, OPEN, same, two_rows};
use crate::Error;
use crate::engine::{Model, guarded};

/// Largest difference by rounding, as a share of the largest value of the output. Kernels for one row and for several
/// add in another order.
const ROUNDING: f64 = 2e-3;

/// Succeeds if rows are independent; otherwise returns the reason why that is not shown. A second draw is compared if
/// the first took less than half of `time`.
pub(super) fn shown(model: &mut dyn Model, time: Duration) -> Result<(), String> {
    let started = Instant::now();
    let mut problem = None;
    for open in OPEN {
        let mut is_shown = false;
        for draw in [Draw::Positive, Draw::Normal] {
            let Some(inputs) = two_rows(model.signature(), open, draw) else { continue };
            if is_shown && started.elapsed() > time / 2 {
                break;
            }
            match inputs.and_then(|inputs| both_ways(model, &inputs)) {
                Ok(ways) => {
                    is_shown |= compare(model, &ways)?;
                    copies(model, &ways, time)?;
                }
                Err(error) => {
                    problem.get_or_insert(error);
                }
            }
        }
        if is_shown {
            return Ok(());
        }
    }
    let problem = problem.map(|error| format!(": {error}")).unwrap_or_default();
    Err(format!("it runs on no two random rows{problem}"))
}

/// Outputs of two rows together, and of each alone.
struct Ways {
    inputs: Vec<Tensor>,
    /// The time of the run of both.
    took: Duration,
    together: Vec<Tensor>,
    alone: [Vec<Tensor>; 2],
}

fn both_ways(model: &mut dyn Model, inputs: &[Tensor]) -> Result<Ways, Error> {
    let mut run = |inputs: &[Tensor]| guarded(|| model.run(inputs));
    let mut one = |row: usize| {
        let inputs: Result<Vec<Tensor>, _> = inputs.iter().map(|input| input.slice_rows(row, 1)).collect();
        run(&inputs.map_err(|error| Error::Run { message: error.to_string() })?)
    };
    let alone = [one(0)?, one(1)?];
    let started = Instant::now();
    let together = run(inputs)?;
    Ok(Ways { inputs: inputs.to_vec(), took: started.elapsed(), alone, together })
}

/// Copies of the two rows in one run: many if that takes little of `time`.
const MANY: usize = 16;
const FEW: usize = 4;

/// Fails if a row's answer changes in a run with copies of it. A model that does not run on so many rows shows nothing.
fn copies(model: &mut dyn Model, ways: &Ways, time: Duration) -> Result<(), String> {
    let count = if ways.took * MANY as u32 <= time { MANY } else { FEW };
    if model.most_rows() < count {
        return Ok(());
    }
    let repeated = |input: &Tensor| Tensor::concat_rows(&vec![input.clone(); count / 2]).ok();
    let Some(inputs) = ways.inputs.iter().map(repeated).collect::<Option<Vec<Tensor>>>() else {
        return Ok(());
    };
    let Ok(outputs) = guarded(|| model.run(&inputs)) else { return Ok(()) };
    for (at, (output, both)) in outputs.iter().zip(&ways.together).enumerate() {
        let name = model.signature().outputs.get(at).map_or("?", |declared| &declared.name);
        let depends = || format!("a row's output '{name}' depends on the number of rows or on equal rows");
        if output.rows() != count {
            return Err(depends());
        }
        for first in (0..count).step_by(2) {
            let pair = output.slice_rows(first, 2).map_err(|error| error.to_string())?;
            same(&pair, both, ROUNDING).map_err(|()| depends())?;
        }
    }
    Ok(())
}

/// Whether a number could be compared; an error if the answers differ.
fn compare(model: &dyn Model, ways: &Ways) -> Result<bool, String> {
    let mut compared = false;
    for (at, together) in ways.together.iter().enumerate() {
        let name = model.signature().outputs.get(at).map_or("?", |declared| &declared.name);
        for (row, alone) in ways.alone.iter().enumerate() {
            let Some(alone) = alone.get(at) else { continue };
            let is_row = together.rows() == 2
                && alone.rows() == 1
                && !together.shape().is_empty()
                && together.shape().get(1..) == alone.shape().get(1..);
            if !is_row {
                let (two, one) = (together.shape(), alone.shape());
                return Err(format!("output '{name}' has shape {two:?} for two rows and {one:?} for one"));
            }
            let own = together.slice_rows(row, 1).map_err(|error| error.to_string())?;
            compared |= same(&own, alone, ROUNDING)
                .map_err(|()| format!("a row's output '{name}' depends on the other rows of the request"))?;
        }
    }
    Ok(compared)
}
