//! Weights as signed bytes, with a scale per channel.

use bytes::Bytes;
use parm_parity_models::onnx::{DataType, Defect, Tensor};

/// The largest integers that weights are scaled to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Steps {
    /// The full range of signed bytes.
    #[default]
    All,
    /// Half of it. Processors without instructions for 8-bit products (VNNI) add two products in 16 bits: 255 times
    /// 127 fits once, not twice, and the sum saturates silently.
    Half,
}

impl Steps {
    fn most(self) -> f32 {
        match self {
            Self::All => 127.0,
            Self::Half => 64.0,
        }
    }
}

/// Weights in 8 bits.
pub(super) struct Quantised {
    /// The bytes, in the weights' shape.
    pub(super) bytes: Tensor,
    /// The size of one step per channel.
    pub(super) scales: Vec<f32>,
}

/// Scales weights to these steps on both sides of zero, so that the largest of each channel along `axis` is at an
/// end.
pub(super) fn quantise(weight: &Tensor, axis: usize, steps: Steps) -> Result<Quantised, Defect> {
    let end = steps.most();
    let (dims, values) = (weight.dims(), weight.to_f32()?);
    let inner: usize = dims[axis + 1..].iter().product();
    let channel = |place: usize| place / inner.max(1) % dims[axis];
    let mut largest = vec![0f32; dims[axis]];
    for (place, value) in values.iter().enumerate() {
        let channel = &mut largest[channel(place)];
        *channel = channel.max(value.abs());
    }
    // The scale of a channel of zeros is arbitrary.
    let scales: Vec<f32> = largest.iter().map(|&most| if most > 0.0 { most / end } else { 1.0 }).collect();
    let byte = |(place, value): (usize, &f32)| {
        (value / scales[channel(place)]).round_ties_even().clamp(-end, end) as i8 as u8
    };
    let bytes: Vec<u8> = values.iter().enumerate().map(byte).collect();
    let name = format!("{}.int8", weight.name());
    Ok(Quantised { bytes: Tensor::new(&name, DataType::Int8, dims, bytes.into())?, scales })
}

/// A bias in 32-bit steps of the sums of products.
pub(super) fn bias(bias: &Tensor, scales: &[f32]) -> Result<Tensor, Defect> {
    let values = bias.to_f32()?;
    let whole = values.iter().zip(scales).map(|(value, scale)| (value / scale).round_ties_even() as i32);
    let data: Bytes = whole.flat_map(i32::to_le_bytes).collect::<Vec<u8>>().into();
    Tensor::new(&format!("{}.int32", bias.name()), DataType::Int32, &[scales.len()], data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_uses_the_whole_range() {
        let weight = Tensor::from_f32("w", &[2, 2], &[1.0, -0.5, 254.0, 2.0]).unwrap();
        let by_row = quantise(&weight, 0, Steps::All).unwrap();
        assert_eq!(by_row.bytes.to_i64().unwrap(), [127, -64, 127, 1]);
        assert_eq!(by_row.scales, [1.0 / 127.0, 2.0]);
        let by_column = quantise(&weight, 1, Steps::All).unwrap();
        assert_eq!(by_column.bytes.to_i64().unwrap(), [0, -32, 127, 127]);
        let halved = quantise(&weight, 0, Steps::Half).unwrap();
        assert_eq!(halved.bytes.to_i64().unwrap(), [64, -32, 64, 1]);
        assert!(2 * 255 * 64 <= i32::from(i16::MAX), "two products fit into 16 bits");
        let zeros = Tensor::from_f32("w", &[1, 2], &[0.0, 0.0]).unwrap();
        assert_eq!(quantise(&zeros, 0, Steps::All).unwrap().scales, [1.0]);
    }

    #[test]
    fn bias_is_in_steps_of_the_products() {
        let tensor = Tensor::from_f32("b", &[2], &[1.0, -3.0]).unwrap();
        assert_eq!(bias(&tensor, &[0.25, 1.0]).unwrap().to_i64().unwrap(), [4, -3]);
    }
}
