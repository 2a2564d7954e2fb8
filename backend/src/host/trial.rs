//! Random inputs for trial runs of a model that is being loaded.
//!
//! Sizes and values are guesses, because a signature does not say which of them a model accepts: an image network may
//! need 32 pixels, and token ids must be in the vocabulary. Small whole numbers are valid for nearly all models.

use half::{bf16, f16};
use parm_protocol::{DataType, Shape, Tensor};
use parm_workload::Random;

use crate::Error;
use crate::engine::{Model, Signature, guarded};

/// Sizes of the open dimensions beyond the first, in the order in which they are tried. 1 is the last, because rows of
/// one element hide much.
pub(super) const OPEN: [usize; 5] = [4, 32, 64, 224, 1];
/// Largest difference of 16-bit floats by rounding.
const ROUNDING_16: f64 = 2e-2;
/// The most elements of one row of an input.
const MOST: usize = 1 << 24;

/// The range of the values of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draw {
    /// Floats from 0 to 1, whole numbers 0 and 1.
    Positive,
    /// Normal floats, whole numbers 1 and 2.
    Normal,
    /// The same; the second row has the opposite signs and twice the size. A branch on the sign of a sum over all rows
    /// is another one for the first row alone.
    Opposite,
}

impl Draw {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Positive => Self::Normal,
            Self::Normal | Self::Opposite => Self::Positive,
        }
    }
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

/// Two rows of each input that differ in every float and in the first whole number; `None` if they would be too large.
pub(super) fn two_rows(signature: &Signature, open: usize, draw: Draw) -> Option<Result<Vec<Tensor>, Error>> {
    drawn(signature, 2, open, draw)
}

/// `first` is the size of open first dimensions.
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

/// Whether anything but NaN was compared; an error if the tensors differ by more than rounding, as a share of the largest
/// value.
pub(super) fn same(one: &Tensor, other: &Tensor, rounding: f64) -> Result<bool, ()> {
    same_within(one, other, (rounding_of(one.datatype(), rounding).unwrap_or_default(), NEAR_ZERO))
}

/// The same with another largest difference. Values other than floats must be equal.
pub(super) fn same_within(one: &Tensor, other: &Tensor, (share, least): Allowed) -> Result<bool, ()> {
    if rounding_of(one.datatype(), share).is_none() {
        return if one.data() == other.data() { Ok(true) } else { Err(()) };
    }
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

fn rounding_of(datatype: DataType, rounding: f64) -> Option<f64> {
    match datatype {
        DataType::Fp32 | DataType::Fp64 => Some(rounding),
        DataType::Fp16 | DataType::Bf16 => Some(rounding.max(ROUNDING_16)),
        _ => None,
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

    #[test]
    fn rows_differ_in_every_datatype() {
        for datatype in DataType::ALL {
            let input = Declared { name: "x".into(), datatype, shape: vec![-1, -1] };
            let signature = Signature { inputs: vec![input], outputs: vec![] };
            for (open, draw) in [(1, Draw::Positive), (3, Draw::Normal)] {
                let inputs = two_rows(&signature, open, draw).unwrap().unwrap();
                assert_eq!(inputs[0].shape(), [2, open]);
                let rows = [0, 1].map(|row| inputs[0].slice_rows(row, 1).unwrap());
                assert_ne!(rows[0].data(), rows[1].data(), "{datatype} {draw:?}");
            }
        }
    }

    #[test]
    fn inputs_that_would_not_fit_into_memory_are_not_drawn() {
        let input = Declared { name: "x".into(), datatype: DataType::Fp32, shape: vec![-1, 1 << 40] };
        let signature = Signature { inputs: vec![input], outputs: vec![] };
        assert!(two_rows(&signature, 1, Draw::Normal).is_none());
    }
}
