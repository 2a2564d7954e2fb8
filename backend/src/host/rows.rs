//! Trial runs of a model that is being loaded: whether it runs at all, and whether its first dimension is a batch.
//!
//! *Problem.* Frontends split requests into rows and workers batch rows of several requests. A variable first dimension
//! need not be a batch: a softmax over it, a sequence length or pairwise similarities give wrong answers when split, and
//! nothing in the file says so.
//!
//! *Choice.* `max_batch_size` in `config.pbtxt` says so. Without it the model is run on random rows: two together,
//! each beside a copy of itself, each alone, and many copies of both, because some models count equal rows, or all. Unless
//! the answers agree, requests stay whole. The same holds if no run succeeds, because then nothing was shown. A dependency
//! that needs certain values, such as a threshold, is not found.
//!
//! Runs of one shape use the same kernels, so a row's answer must be the same beside its copy. Kernels for one row may round
//! otherwise than those for several, and deep networks amplify that to a hundredth on random input, so the run alone may
//! differ more.
//!
//! *Rejected.* Reading the graph: each operator would need a rule, and a missing rule would be a wrong answer.

use std::time::{Duration, Instant};

use parm_protocol::Tensor;

use crate::Error;
use crate::engine::trial::{Allowed, Draw, NEAR_ZERO, drawn, same};
use crate::engine::{Model, guarded, joined};

/// Seed of the random rows.
const SEED: u64 = 0x7249;

/// Largest difference between runs of one shape, as a share of the largest value of the output, and in addition.
const SAME_KERNELS: Allowed = (1e-4, NEAR_ZERO);
/// Largest difference between runs of two and of many rows.
const ROUNDING: Allowed = (2e-3, NEAR_ZERO);
/// Largest difference between a row alone and beside another.
const KERNELS: Allowed = (5e-2, 1e-5);

/// Sizes of the open dimensions beyond the first, in the order in which they are tried. 1 is the last, because rows of
/// one element hide much.
const OPEN: [usize; 5] = [4, 32, 64, 224, 1];

/// Rows of the largest run: many if a run of two takes little of the time.
const MANY: usize = 16;
const FEW: usize = 4;

/// Succeeds if rows are independent; otherwise returns the reason why that is not shown. A further draw is compared if
/// those before took less than half of `time`.
pub(super) fn independent(model: &mut dyn Model, time: Duration) -> Result<(), String> {
    let started = Instant::now();
    let mut problem = None;
    for open in OPEN {
        let mut is_shown = false;
        for draw in [Draw::Positive, Draw::Normal, Draw::Opposite] {
            let Some(inputs) = drawn(model.signature(), 2, open, (draw, SEED)) else { continue };
            if is_shown && started.elapsed() > time / 2 {
                break;
            }
            match Runs::of(model, &inputs, time) {
                Ok(runs) => is_shown |= runs.compare(model)?,
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

/// Outputs of two rows together, of each beside its copy and alone, and of many copies of both if the model takes so many.
struct Runs {
    both: Vec<Tensor>,
    twice: [Vec<Tensor>; 2],
    alone: [Vec<Tensor>; 2],
    many: Option<(usize, Vec<Tensor>)>,
}

impl Runs {
    fn of(model: &mut dyn Model, inputs: &[Tensor], time: Duration) -> Result<Self, Error> {
        let mut run = |rows: &[usize]| {
            let pick = |row: &usize| inputs.iter().map(|input| input.slice_rows(*row, 1)).collect();
            let rows = rows.iter().map(pick).collect::<Result<Vec<Vec<Tensor>>, _>>()?;
            let inputs = joined(&rows)?;
            guarded(|| model.run(&inputs))
        };
        let alone = [run(&[0])?, run(&[1])?];
        let started = Instant::now();
        let both = run(&[0, 1])?;
        let took = started.elapsed();
        let twice = [run(&[0, 0])?, run(&[1, 1])?];
        let count = if took * MANY as u32 <= time { MANY } else { FEW };
        let rows: Vec<usize> = (0..count).map(|row| row % 2).collect();
        let many = run(&rows).ok().map(|outputs| (count, outputs));
        Ok(Self { both, twice, alone, many })
    }

    /// Whether a number could be compared; an error if the answers differ.
    fn compare(&self, model: &dyn Model) -> Result<bool, String> {
        let mut any = false;
        // Equal numbers of tokens show nothing.
        let counted = usize::from(model.counts_tokens());
        for (at, both) in self.both.iter().enumerate().take(self.both.len().saturating_sub(counted)) {
            let name = model.signature().outputs.get(at).map_or("?", |declared| &declared.name);
            let others = || format!("a row's output '{name}' depends on the other rows of the request");
            let number = || format!("a row's output '{name}' depends on the number of rows or on equal rows");
            let row = |of: &Tensor, row| of.slice_rows(row, 1).map_err(|error| error.to_string());
            for (own, (alone, twice)) in self.alone.iter().zip(&self.twice).enumerate() {
                let (Some(alone), Some(twice)) = (alone.get(at), twice.get(at)) else { continue };
                let is_row = both.rows() == 2
                    && alone.rows() == 1
                    && twice.shape() == both.shape()
                    && !both.shape().is_empty()
                    && both.shape().get(1..) == alone.shape().get(1..);
                if !is_row {
                    let (two, one) = (both.shape(), alone.shape());
                    return Err(format!(
                        "output '{name}' has shape {two:?} for two rows and {one:?} for one"
                    ));
                }
                let beside = row(both, own)?;
                any |= same(&beside, alone, KERNELS).map_err(|()| others())?;
                for copy in 0..2 {
                    same(&beside, &row(twice, copy)?, SAME_KERNELS).map_err(|()| others())?;
                }
            }
            let Some((count, many)) = &self.many else { continue };
            let many = many.get(at).filter(|many| many.rows() == *count).ok_or_else(number)?;
            for first in (0..*count).step_by(2) {
                let pair = many.slice_rows(first, 2).map_err(|error| error.to_string())?;
                same(&pair, both, ROUNDING).map_err(|()| number())?;
            }
        }
        Ok(any)
    }
}

/// Whether the model runs on any random input.
pub(super) fn runs(model: &mut dyn Model) -> bool {
    let batched = model.signature().is_batched();
    OPEN.into_iter().flat_map(|open| [(open, Draw::Positive), (open, Draw::Normal)]).any(|(open, draw)| {
        let inputs = drawn(model.signature(), if batched { 1 } else { open }, open, (draw, SEED));
        inputs.is_some_and(|inputs| guarded(|| model.run(&inputs)).is_ok())
    })
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
        independent(&mut Scripted(signature, answer), Duration::from_secs(60))
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
            ("equal rows", |rows, at, x| x + rows.iter().filter(|row| row[0] == rows[at][0]).count() as f32),
            ("rows beyond two", |rows, _, x| x + rows.len().saturating_sub(2) as f32),
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
