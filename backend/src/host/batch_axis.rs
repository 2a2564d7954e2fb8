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
//! Kernels for one row may round otherwise than those for several, and deep networks amplify that to a hundredth on random
//! input. A small difference from the run alone therefore counts as rounding if the row's answer stays the same with
//! other rows in the run, and with more of them.
//!
//! *Rejected.* Reading the graph: each operator would need a rule, and a missing rule would be a wrong answer.

use std::time::{Duration, Instant};

use parm_protocol::Tensor;

use super::trial::{Allowed, Draw, NEAR_ZERO, OPEN, same, same_within, two_rows};
use crate::Error;
use crate::engine::{Model, guarded};

/// Largest difference by rounding, as a share of the largest value of the output. Kernels for one row and for several
/// add in another order.
const ROUNDING: f64 = 2e-3;
/// Largest difference between kernels for one row and for several, and the same near zero. Up to it, runs with other
/// rows decide.
const KERNELS: Allowed = (5e-2, 1e-5);
/// Largest difference of a row's answer between runs of one shape, which use the same kernels.
const SAME_KERNELS: Allowed = (1e-4, NEAR_ZERO);

/// Succeeds if rows are independent; otherwise returns the reason why that is not shown. A further draw is compared if
/// those before took less than half of `time`.
pub(super) fn shown(model: &mut dyn Model, time: Duration) -> Result<(), String> {
    let started = Instant::now();
    let mut problem = None;
    for open in OPEN {
        let mut is_shown = false;
        for draw in [Draw::Positive, Draw::Normal, Draw::Opposite] {
            let Some(inputs) = two_rows(model.signature(), open, draw) else { continue };
            if is_shown && started.elapsed() > time / 2 {
                break;
            }
            match inputs.and_then(|inputs| both_ways(model, &inputs)) {
                Ok(ways) => {
                    let Compared { any, near } = compare(model, &ways)?;
                    is_shown |= any;
                    let is_same = copies(model, &ways, time)?;
                    if let Some(output) = near {
                        let stays = is_same && company(model, &ways, draw.other(), open)?;
                        stays.then_some(()).ok_or_else(|| depends(&output))?;
                    }
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

/// Fails if a row's answer changes in a run with copies of it. Returns false for a model that does not run on so many
/// rows, which shows nothing.
fn copies(model: &mut dyn Model, ways: &Ways, time: Duration) -> Result<bool, String> {
    let count = if ways.took * MANY as u32 <= time { MANY } else { FEW };
    if model.most_rows() < count {
        return Ok(false);
    }
    let repeated = |input: &Tensor| Tensor::concat_rows(&vec![input.clone(); count / 2]).ok();
    let Some(inputs) = ways.inputs.iter().map(repeated).collect::<Option<Vec<Tensor>>>() else {
        return Ok(false);
    };
    let Ok(outputs) = guarded(|| model.run(&inputs)) else { return Ok(false) };
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
    Ok(true)
}

/// Whether each row's answer stays the same next to other rows: a copy of it, and the first row of another draw. The run
/// has the same shape, so that only the other row can change the answer.
fn company(model: &mut dyn Model, ways: &Ways, draw: Draw, open: usize) -> Result<bool, String> {
    let other = two_rows(model.signature(), open, draw).and_then(Result::ok);
    let mut is_shown = false;
    for row in 0..2 {
        let own = rows_of(&ways.inputs, row)?;
        let others = [Some(own.clone()), other.as_ref().and_then(|other| rows_of(other, 0).ok())];
        for other in others.into_iter().flatten() {
            let pair = |(own, other): (&Tensor, &Tensor)| {
                let pair = if row == 0 { [own, other] } else { [other, own] };
                Tensor::concat_rows(&pair.map(Tensor::clone))
            };
            let inputs: Result<Vec<Tensor>, _> = own.iter().zip(&other).map(pair).collect();
            let Ok(outputs) =
                inputs.map_err(|_| ()).and_then(|inputs| guarded(|| model.run(&inputs)).map_err(|_| ()))
            else {
                continue; // such values may not be valid
            };
            is_shown = true;
            for (one, both) in rows_of(&outputs, row)?.iter().zip(&rows_of(&ways.together, row)?) {
                if same_within(one, both, SAME_KERNELS).is_err() {
                    return Ok(false);
                }
            }
        }
    }
    Ok(is_shown)
}

fn rows_of(tensors: &[Tensor], row: usize) -> Result<Vec<Tensor>, String> {
    tensors.iter().map(|tensor| tensor.slice_rows(row, 1).map_err(|error| error.to_string())).collect()
}

fn depends(output: &str) -> String {
    format!("a row's output '{output}' depends on the other rows of the request")
}

/// The result of comparing runs together with runs alone.
#[derive(Default)]
struct Compared {
    /// A number could be compared.
    any: bool,
    /// An output whose values differ by more than rounding, and by no more than kernels may.
    near: Option<String>,
}

/// Compares the runs; an error if the answers differ.
fn compare(model: &dyn Model, ways: &Ways) -> Result<Compared, String> {
    let mut compared = Compared::default();
    // Equal numbers of tokens show nothing.
    let counted = usize::from(model.token_ids().is_some());
    let outputs = ways.together.len().saturating_sub(counted);
    for (at, together) in ways.together.iter().take(outputs).enumerate() {
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
            let is_any = same(&own, alone, ROUNDING).or_else(|()| {
                compared.near.get_or_insert_with(|| name.to_owned());
                same_within(&own, alone, KERNELS).map_err(|()| depends(name))
            })?;
            compared.any |= is_any;
        }
    }
    Ok(compared)
}

#[cfg(test)]
mod tests {
    use parm_protocol::DataType;

    use super::*;
    use crate::engine::{Declared, Signature};

    const WIDTH: usize = 4;

    /// Answers rows of floats with a function of all rows of a run.
    struct Scripted(Signature, fn(&[&[f32]], usize, f32) -> f32);

    impl Model for Scripted {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
            let values = inputs[0].as_f32().unwrap();
            let rows: Vec<&[f32]> = values.chunks(WIDTH).collect();
            let answer = |(at, row): (usize, &&[f32])| {
                row.iter().map(|value| (self.1)(&rows, at, *value)).collect::<Vec<_>>()
            };
            let answers: Vec<f32> = rows.iter().enumerate().flat_map(answer).collect();
            Ok(vec![Tensor::from_f32([rows.len(), WIDTH].as_slice(), &answers).unwrap()])
        }
    }

    fn shown_of(answer: fn(&[&[f32]], usize, f32) -> f32) -> Result<(), String> {
        let tensor = |name: &str| Declared {
            name: name.into(),
            datatype: DataType::Fp32,
            shape: vec![-1, WIDTH as i64],
        };
        let signature = Signature { inputs: vec![tensor("x")], outputs: vec![tensor("y")] };
        shown(&mut Scripted(signature, answer), Duration::from_secs(60))
    }

    /// The sum of the first values of all rows but one.
    fn others(rows: &[&[f32]], at: usize) -> f32 {
        rows.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, row)| row[0]).sum()
    }

    #[test]
    fn kernels_that_round_otherwise_show_independent_rows() {
        for (name, answer) in [
            ("equal", (|_, _, x| x) as fn(&[&[f32]], usize, f32) -> f32),
            ("a hundredth", |rows, _, x| if rows.len() > 1 { 1.013 * x } else { x }),
            ("zeros", |rows, _, _| if rows.len() > 1 { 2e-6 } else { 0.0 }),
            ("tiny", |rows, _, x| 1e-30 * if rows.len() > 1 { 1.01 * x } else { x }),
            ("large", |rows, _, x| 1e30 * if rows.len() > 1 { 1.01 * x } else { x }),
        ] {
            assert_eq!(shown_of(answer), Ok(()), "{name}");
        }
    }

    #[test]
    fn weak_dependencies_between_rows_are_found() {
        for (name, answer) in [
            ("another row", (|rows, at, x| x + others(rows, at)) as fn(&[&[f32]], usize, f32) -> f32),
            ("a hundredth of another", |rows, at, x| x + 0.01 * others(rows, at)),
            ("near zero", |rows, at, _| 1e-4 * others(rows, at)),
            ("the number of rows", |rows, _, x| x * (1.0 + 0.01 * rows.len() as f32)),
            ("the largest value", |rows, _, x| {
                let largest = rows.iter().flat_map(|row| row.iter()).fold(0f32, |most, x| most.max(x.abs()));
                // As the quantization of a whole batch rounds.
                let step = largest / 127.0;
                (x / step).round() * step
            }),
            ("a branch on the sum of all rows", |rows, _, x| {
                let sum: f32 = rows.iter().flat_map(|row| row.iter()).sum();
                if sum > 0.0 { x + x } else { -x }
            }),
            ("kernels and another row", |rows, at, x| {
                (if rows.len() > 1 { 1.01 } else { 1.0 }) * x + 0.005 * others(rows, at)
            }),
        ] {
            let reason = shown_of(answer).expect_err(name);
            assert!(reason.contains("depends on the"), "{name}: {reason}");
        }
    }
}
