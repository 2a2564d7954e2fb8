//! Trial runs of a model that is being loaded: whether it runs at all, and whether its first dimension is a batch.
//!
//! *Problem.* Frontends split requests into rows and workers batch rows of several requests. A variable first dimension
//! need not be a batch: a softmax over it, a sequence length or pairwise similarities give wrong answers when split, and
//! nothing in the file says so.
//!
//! *Choice.* `config.pbtxt` or the configuration says so. If neither does, the model is run on random rows: two together,
//! each beside a copy of itself, each alone, and many copies of both, because some models count equal rows, or all. Unless
//! the answers agree, requests stay whole. The same holds if no run succeeds, because then nothing was shown. A dependency
//! that needs certain values, such as a threshold, is not found.
//!
//! Runs of one shape use the same kernels, so a row's answer must be the same beside its copy. Kernels for one row may round
//! otherwise than those for several, and deep networks amplify that to a hundredth on random input, so the run alone may
//! differ more.
//!
//! *Rejected.* Reading the graph: each operator would need a rule, and a missing rule would be a wrong answer.
//!
//! Sizes and values of random rows are guesses, because a signature does not say which of them a model accepts: an image
//! network may need 32 pixels, and token ids must be in the vocabulary. Small whole numbers are valid for nearly all models.

use std::time::{Duration, Instant};

use half::{bf16, f16};
use parm_protocol::{DataType, Shape, Tensor};
use parm_workload::Random;

use crate::Error;
use crate::engine::{Model, Signature, guarded};

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
            let Some(inputs) = drawn(model.signature(), 2, open, draw) else { continue };
            if is_shown && started.elapsed() > time / 2 {
                break;
            }
            match inputs.and_then(|inputs| Runs::of(model, inputs, time)) {
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
    fn of(model: &mut dyn Model, inputs: Vec<Tensor>, time: Duration) -> Result<Self, Error> {
        let failed = |error: parm_protocol::Error| Error::Run { message: error.to_string() };
        let most = model.most_rows();
        let mut run = |rows: &[usize]| {
            let pick = |input: &Tensor| {
                let rows = rows.iter().map(|row| input.slice_rows(*row, 1)).collect::<Result<Vec<_>, _>>()?;
                Tensor::concat_rows(&rows)
            };
            let inputs = inputs.iter().map(pick).collect::<Result<Vec<_>, _>>().map_err(failed)?;
            guarded(|| model.run(&inputs))
        };
        let alone = [run(&[0])?, run(&[1])?];
        let started = Instant::now();
        let both = run(&[0, 1])?;
        let took = started.elapsed();
        let twice = [run(&[0, 0])?, run(&[1, 1])?];
        let count = if took * MANY as u32 <= time { MANY } else { FEW };
        let rows: Vec<usize> = (0..count).map(|row| row % 2).collect();
        let many = if count <= most { run(&rows).ok() } else { None };
        let many = many.map(|outputs| (count, outputs));
        Ok(Self { both, twice, alone, many })
    }

    /// Whether a number could be compared; an error if the answers differ.
    fn compare(&self, model: &dyn Model) -> Result<bool, String> {
        let mut any = false;
        // Equal numbers of tokens show nothing.
        let counted = usize::from(model.token_ids().is_some());
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

/// The range of the values of a draw.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Draw {
    /// Floats from 0 to 1, whole numbers 0 and 1.
    Positive,
    /// Normal floats, whole numbers 1 and 2.
    Normal,
    /// The same; the second row has the opposite signs and twice the size. A branch on the sign of a sum over all rows
    /// is another one for the first row alone.
    Opposite,
}

/// Whether the model runs on any random input.
pub(super) fn runs(model: &mut dyn Model) -> bool {
    let batched = model.signature().is_batched();
    let draws = OPEN.into_iter().flat_map(|open| [(open, Draw::Positive), (open, Draw::Normal)]);
    draws.into_iter().any(|(open, draw)| {
        let inputs = drawn(model.signature(), if batched { 1 } else { open }, open, draw);
        inputs.is_some_and(|inputs| inputs.and_then(|inputs| guarded(|| model.run(&inputs))).is_ok())
    })
}

/// The most elements of one row of an input.
const MOST: usize = 1 << 24;

/// Inputs of which two rows differ in every float and in the first whole number; `None` if they would be too large. `first` is
/// the size of open first dimensions.
fn drawn(signature: &Signature, first: usize, open: usize, draw: Draw) -> Option<Result<Vec<Tensor>, Error>> {
    let mut random = Random::of(0x7249, [open as u64, draw as u64]);
    let shapes = signature.inputs.iter().map(|input| {
        let mut shape: Shape = input.shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(open)).collect();
        if let (Some(size), Some(-1)) = (shape.first_mut(), input.shape.first()) {
            *size = first;
        }
        shape
    });
    let shapes: Vec<Shape> = shapes.collect();
    let size = |shape: &Shape| shape.iter().fold(1usize, |size, dim| size.saturating_mul(*dim));
    if shapes.iter().any(|shape| size(shape) > 2 * MOST) {
        return None;
    }
    let inputs = signature.inputs.iter().zip(shapes).map(|(input, shape)| {
        let data = values(input.datatype, size(&shape), draw, &mut random);
        Tensor::new(input.datatype, shape, data.into())
            .map_err(|error| Error::Run { message: error.to_string() })
    });
    Some(inputs.collect())
}

fn values(datatype: DataType, count: usize, draw: Draw, random: &mut Random) -> Vec<u8> {
    let mut data = Vec::with_capacity(count * datatype.size().unwrap_or(5));
    let second = count.div_ceil(2);
    let mut before: Vec<f64> = Vec::with_capacity(count);
    for at in 0..count {
        let float = match draw {
            Draw::Positive => random.unit(),
            Draw::Opposite if at >= second => -2.0 * before[at - second],
            Draw::Normal | Draw::Opposite => random.normal(),
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
    data
}

/// A difference that is allowed, as a share of the largest value and in addition.
pub(super) type Allowed = (f64, f64);

/// Largest difference of numbers near zero.
pub(super) const NEAR_ZERO: f64 = 1e-6;
/// Largest difference of 16-bit floats by rounding.
const ROUNDING_16: f64 = 2e-2;

/// Whether anything but NaN was compared; an error if the tensors differ by more than is allowed. Values other than floats must
/// be equal.
pub(super) fn same(one: &Tensor, other: &Tensor, (share, least): Allowed) -> Result<bool, ()> {
    if one.shape() != other.shape() {
        return Err(());
    }
    let share = match one.datatype() {
        DataType::Fp32 | DataType::Fp64 => share,
        DataType::Fp16 | DataType::Bf16 => share.max(ROUNDING_16),
        _ => return if one.data() == other.data() { Ok(true) } else { Err(()) },
    };
    let (one, other) = (floats(one), floats(other));
    let largest =
        other.iter().filter(|value| value.is_finite()).fold(0f64, |most, value| most.max(value.abs()));
    let close = |one: f64, other: f64| {
        one == other || (one.is_nan() && other.is_nan()) || (one - other).abs() <= share * largest + least
    };
    if one.iter().zip(&other).all(|(one, other)| close(*one, *other)) {
        Ok(other.iter().any(|value| !value.is_nan()))
    } else {
        Err(())
    }
}

fn floats(tensor: &Tensor) -> Vec<f64> {
    let data = tensor.data();
    match tensor.datatype() {
        DataType::Fp16 => data.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).into()).collect(),
        DataType::Bf16 => data.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).into()).collect(),
        DataType::Fp64 => {
            let read = |b: &[u8]| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
            data.chunks_exact(8).map(read).collect()
        }
        _ => data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Declared;

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

    #[test]
    fn rows_differ_in_every_datatype() {
        for datatype in DataType::ALL {
            let input = Declared { name: "x".into(), datatype, shape: vec![-1, -1] };
            let signature = Signature { inputs: vec![input], outputs: vec![] };
            for (open, draw) in [(1, Draw::Positive), (3, Draw::Normal)] {
                let inputs = drawn(&signature, 2, open, draw).unwrap().unwrap();
                assert_eq!(inputs[0].shape(), [2, open]);
                let rows = [0, 1].map(|row| inputs[0].slice_rows(row, 1).unwrap());
                assert_ne!(rows[0].data(), rows[1].data(), "{datatype}");
            }
        }
    }

    #[test]
    fn inputs_that_would_not_fit_into_memory_are_not_drawn() {
        let input = Declared { name: "x".into(), datatype: DataType::Fp32, shape: vec![-1, 1 << 40] };
        let signature = Signature { inputs: vec![input], outputs: vec![] };
        assert!(drawn(&signature, 2, 1, Draw::Normal).is_none());
    }
}
