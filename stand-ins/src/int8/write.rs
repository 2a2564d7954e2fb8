//! Writes the 8-bit copy: weights as signed bytes with a scale per channel, and values rounded on the way.

use std::collections::BTreeMap;

use bytes::Bytes;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, DataType, Defect, Tensor};

use super::{Cuts, Layer, Points, Ranges};
use crate::graph::{Links, PER_CHANNEL};

/// The 8-bit numbers of a value: the size of a step, and scale and zero point as names of constants.
struct Mapping {
    step: f32,
    names: [String; 2],
}

/// The copy; `None` if no layer can be quantised.
pub(crate) fn quantise(draft: &Draft, ranges: &Ranges, cuts: &Cuts) -> Result<Option<Draft>, Defect> {
    let mut copy = draft.clone();
    debug_assert!(copy.opset() >= PER_CHANNEL, "the graph must be raised before it is quantised");
    let links = Links::of(&copy);
    let points = Points::of(&copy, &links);
    let mut mappings: BTreeMap<String, Mapping> = BTreeMap::new();
    for (value, measured) in points.values {
        let Some((step, zero)) = ranges.mapping(&measured, cuts) else { continue };
        let scale = Tensor::from_f32(&format!("{value}/scale"), &[], &[step])?;
        let zero = Tensor::new(&format!("{value}/zero"), DataType::Uint8, &[], vec![zero].into())?;
        let names = [copy.add_constant(scale), copy.add_constant(zero)];
        mappings.insert(value, Mapping { step, names });
    }
    let is_ready = |layer: &Layer| {
        let node = &copy.nodes[layer.at];
        let read = node.at(0).unwrap_or_default();
        !node.only_output().is_some_and(|made| cuts.leaves(made))
            && mappings.contains_key(read)
            && layer.output.as_ref().is_none_or(|made| mappings.contains_key(made))
    };
    let layers: Vec<Layer> = points.layers.into_iter().filter(is_ready).collect();
    if layers.is_empty() {
        return Ok(None);
    }
    for layer in &layers {
        let step = mappings[copy.nodes[layer.at].at(0).unwrap_or_default()].step;
        lighten(&mut copy, layer, (step, cuts.steps))?;
    }
    for (value, mapping) in &mappings {
        // A value stays if its layer turned out not to be quantised.
        let is_wanted = layers
            .iter()
            .any(|layer| layer.output.as_deref() == Some(value) || copy.nodes[layer.at].at(0) == Some(value));
        if is_wanted {
            round(&mut copy, &links, value, mapping);
        }
    }
    copy.forget(|_| true);
    copy.sort();
    Ok(Some(copy))
}

/// Makes the readers of a value read it rounded to the 8-bit grid. An output of the graph keeps its name and is not rounded.
fn round(copy: &mut Draft, links: &Links, value: &str, Mapping { names: [scale, zero], .. }: &Mapping) {
    let (bytes, rounded) = (copy.fresh(&format!("{value}/bytes")), copy.fresh(&format!("{value}/rounded")));
    let to = copy.make("QuantizeLinear", &[value, scale, zero], &bytes, []);
    let back = copy.make("DequantizeLinear", &[&bytes, scale, zero], &rounded, []);
    for &reader in links.readers(value) {
        let inputs = copy.nodes[reader].input.iter_mut();
        inputs.filter(|name| *name == value).for_each(|name| name.clone_from(&rounded));
    }
    copy.nodes.extend([to, back]);
}

/// Stores a layer's weights in 8 bits, and its bias in the steps of its products.
fn lighten(copy: &mut Draft, layer: &Layer, (step, steps): (f32, Steps)) -> Result<(), Defect> {
    let node = &copy.nodes[layer.at];
    let is_conv = node.is(&["Conv"]);
    let (weight, bias) = (copy.constants[&node.input[1]].clone(), node.at(2).map(str::to_owned));
    let quantised = in_bytes(&weight, layer.axis, steps)?;
    let scales = dequantised(copy, layer.at, 1, (&quantised.bytes, layer.axis, &quantised.scales))?;
    if let Some(bias) = bias.filter(|_| is_conv) {
        let steps: Vec<f32> = scales.iter().map(|scale| scale * step).collect();
        let whole = in_steps(&copy.constants[&bias], &steps)?;
        dequantised(copy, layer.at, 2, (&whole, 0, &steps))?;
    }
    Ok(())
}

/// Makes a node read a constant through a `DequantizeLinear`. Returns the scales.
fn dequantised(
    copy: &mut Draft,
    at: usize,
    place: usize,
    (whole, axis, scales): (&Tensor, usize, &[f32]),
) -> Result<Vec<f32>, Defect> {
    let name = whole.name().to_owned();
    let zeros = vec![0u8; whole.datatype().size_of(scales.len()).unwrap_or_default()];
    let zero = Tensor::new(&format!("{name}/zero"), whole.datatype(), &[scales.len()], zeros.into())?;
    let scale = Tensor::from_f32(&format!("{name}/scale"), &[scales.len()], scales)?;
    let (zero, scale) = (copy.add_constant(zero), copy.add_constant(scale));
    let whole = copy.add_constant(whole.clone());
    let made = copy.fresh(&format!("{name}/rounded"));
    let axis = Attribute::Int(axis as i64);
    let node = copy.make("DequantizeLinear", &[&whole, &scale, &zero], &made, [("axis", axis)]);
    copy.nodes.push(node);
    copy.nodes[at].input[place] = made;
    Ok(scales.to_vec())
}

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

struct Quantised {
    bytes: Tensor,
    /// The size of one step per channel.
    scales: Vec<f32>,
}

/// Scales weights to these steps on both sides of zero, so that the largest of each channel along `axis` is at an
/// end.
fn in_bytes(weight: &Tensor, axis: usize, steps: Steps) -> Result<Quantised, Defect> {
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
fn in_steps(bias: &Tensor, scales: &[f32]) -> Result<Tensor, Defect> {
    let values = bias.to_f32()?;
    let whole = values.iter().zip(scales).map(|(value, scale)| (value / scale).round_ties_even() as i32);
    let data: Bytes = whole.flat_map(i32::to_le_bytes).collect::<Vec<u8>>().into();
    Tensor::new(&format!("{}.int32", bias.name()), DataType::Int32, &[scales.len()], data)
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Conv, Dense, Model, Pool, Value};

    use super::*;
    use crate::int8::gather;
    use crate::testing::{Alone, Stage, operators};

    fn classifier() -> Model {
        let (mut builder, x) = Builder::reading("classifier", 7, Value::batch_of_f32("x", &[1, 12, 12]));
        let conv = builder.conv("conv", &x, Conv::same(1, 8, 3)).unwrap();
        let relu = builder.node("Relu", "relu", &[&conv]);
        let pool = builder.max_pool("pool", &relu, Pool { kernel: 2, stride: 2, padding: 0 });
        let second = builder.conv("second", &pool, Conv::same(8, 8, 3)).unwrap();
        let relu = builder.node("Relu", "relu.2", &[&second]);
        let flat = builder.node("Flatten", "flat", &[&relu]);
        builder.dense("y", &flat, Dense { inputs: 288, outputs: 5 }).unwrap();
        builder.build_with(Value::batch_of_f32("y", &[5])).unwrap()
    }

    fn copy(cuts: &Cuts) -> (Draft, f64) {
        let (stage, model) = (Stage::new(), classifier());
        let values = parm_random::Random::new(5).normals(16 * 144);
        let array = parm_protocol::Tensor::from_f32([16, 1, 12, 12].as_slice(), &values).unwrap();
        let rows = stage.rows(&model, &[array]);
        let draft = Draft::new(&model).unwrap();
        let ranges = gather(&stage.workshop, &draft, &rows, &Alone).unwrap();
        let copy = quantise(&draft, &ranges, cuts).unwrap().unwrap();
        let said = stage.answers(&model, &rows);
        let answers = stage.answers(&copy.clone().finish().unwrap(), &rows);
        let apart: f32 = said.iter().zip(&answers).map(|(a, b)| (a - b).powi(2)).sum();
        let size: f32 = said.iter().map(|a| a.powi(2)).sum();
        (copy, f64::from((apart / size).sqrt()))
    }

    fn count(draft: &Draft, op: &str) -> usize {
        operators(draft).iter().filter(|name| *name == op).count()
    }

    #[test]
    fn eight_bit_copy_has_nearly_the_same_outputs() {
        let (copy, apart) = copy(&Cuts::of(0.0));
        assert!(apart > 0.0 && apart < 0.03, "{apart}");
        // Values: the input, the outputs of both rectifiers, of the pool between and of the flattening. Weights and
        // biases: five.
        assert_eq!((count(&copy, "QuantizeLinear"), count(&copy, "DequantizeLinear")), (5, 10));
        let (copy, apart) = self::copy(&Cuts::of(0.0).in_steps(Steps::Half));
        assert!(apart > 0.0 && apart < 0.05, "{apart} in half of the steps");
        let weights = copy.constants.values().filter(|constant| constant.datatype() == DataType::Int8);
        let largest = weights.flat_map(|weight| weight.to_i64().unwrap()).map(i64::abs).max();
        assert_eq!(largest, Some(64));
    }

    #[test]
    fn layers_that_are_left_stay_in_32_bits_with_rounded_inputs() {
        let left = |names: &[&str]| Cuts::of(0.0).leaving(&names.iter().map(|&name| name.into()).collect());
        let found = |names: &[&str]| {
            let (copy, apart) = copy(&left(names));
            assert!(apart > 0.0 && apart < 0.03, "{names:?}: {apart}");
            (count(&copy, "QuantizeLinear"), count(&copy, "DequantizeLinear"))
        };
        assert_eq!(found(&["conv", "second"]), (1, 2));
        // Without the product there is one weight less, and the flattened value that only it reads is not rounded.
        assert_eq!(found(&["y"]), (4, 8));
        let draft = Draft::new(&classifier()).unwrap();
        assert!(quantise(&draft, &Ranges::default(), &left(&["y"])).unwrap().is_none(), "no ranges");
    }

    #[test]
    fn moved_values_keep_their_steps() {
        let (copy, _) = copy(&Cuts::of(0.0));
        let step = |value: &str| copy.constants[&format!("{value}/scale")].to_f32().unwrap()[0];
        assert_eq!(step("relu"), step("pool"));
        assert_eq!(step("relu.2"), step("flat"));
        assert_ne!(step("relu"), step("relu.2"));
        // The output of a rectifier begins at zero.
        assert_eq!(copy.constants["relu/zero"].to_i64().unwrap(), [0]);
    }

    #[test]
    fn each_channel_uses_the_whole_range() {
        let weight = Tensor::from_f32("w", &[2, 2], &[1.0, -0.5, 254.0, 2.0]).unwrap();
        let by_row = in_bytes(&weight, 0, Steps::All).unwrap();
        assert_eq!(by_row.bytes.to_i64().unwrap(), [127, -64, 127, 1]);
        assert_eq!(by_row.scales, [1.0 / 127.0, 2.0]);
        let by_column = in_bytes(&weight, 1, Steps::All).unwrap();
        assert_eq!(by_column.bytes.to_i64().unwrap(), [0, -32, 127, 127]);
        let halved = in_bytes(&weight, 0, Steps::Half).unwrap();
        assert_eq!(halved.bytes.to_i64().unwrap(), [64, -32, 64, 1]);
        assert!(2 * 255 * 64 <= i32::from(i16::MAX), "two products fit into 16 bits");
        let zeros = Tensor::from_f32("w", &[1, 2], &[0.0, 0.0]).unwrap();
        assert_eq!(in_bytes(&zeros, 0, Steps::All).unwrap().scales, [1.0]);
    }

    #[test]
    fn bias_is_in_steps_of_the_products() {
        let tensor = Tensor::from_f32("b", &[2], &[1.0, -3.0]).unwrap();
        assert_eq!(in_steps(&tensor, &[0.25, 1.0]).unwrap().to_i64().unwrap(), [4, -3]);
    }
}
