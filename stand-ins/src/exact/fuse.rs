//! Makes convolutions that engines compute in one pass: a normalisation, factor or summand per channel behind a convolution
//! becomes part of its weights, and a decomposed hard sigmoid becomes the operator.
//!
//! Exporters that do not know that operator write `clip(x + 3, 0, 6) / 6`: three passes over a value. `x` times it,
//! the hard swish of small networks for pictures, is a fourth pass. Engines fuse it into the convolution before it,
//! but only as the product of a value and its hard sigmoid.

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, DataType, Defect, Tensor};

use crate::graph::Links;

/// The affine function behind a convolution: each channel times a factor, plus a summand.
struct Affine {
    factor: Vec<f32>,
    summand: Vec<f32>,
}

/// Folds such nodes into the convolutions before them, one after another.
pub(super) fn fold(draft: &mut Draft) -> Result<(), Defect> {
    let links = Links::of(draft);
    let mut folded = vec![false; draft.nodes.len()];
    for at in 0..draft.nodes.len() {
        // Positions stay valid: a folded node remains, without readers, until the end.
        while let Some((next, affine)) = follower(draft, &links, at)?.filter(|(next, _)| !folded[*next]) {
            if !absorb(draft, at, &affine)? {
                break;
            }
            folded[next] = true;
            let taken = draft.nodes[next].output[0].clone();
            let unused = draft.fresh(&taken);
            draft.nodes[at].output[0] = taken;
            draft.nodes[next].output[0] = unused;
        }
    }
    let mut gone = folded.into_iter();
    draft.nodes.retain(|_| !gone.next().unwrap_or(false));
    Ok(())
}

/// The node behind a convolution that can be folded into it.
fn follower(draft: &Draft, links: &Links, at: usize) -> Result<Option<(usize, Affine)>, Defect> {
    let conv = &draft.nodes[at];
    let weight = conv.at(1).and_then(|name| draft.constants.get(name)).filter(|_| conv.is(&["Conv"]));
    let (Some(weight), Some(made)) = (weight, conv.only_output()) else { return Ok(None) };
    let Some(next) = links.only_reader(made) else { return Ok(None) };
    let affine = follower_of(draft, next, made, (weight.dims()[0], weight.dims().len()))?;
    Ok(affine.map(|affine| (next, affine)))
}

/// The affine function of a node on each channel of a value of this rank; `None` if the node does anything else.
fn follower_of(
    draft: &Draft,
    next: usize,
    made: &str,
    (channels, rank): (usize, usize),
) -> Result<Option<Affine>, Defect> {
    Ok(match &draft.nodes[next] {
        node if node.is(&["BatchNormalization"]) && node.at(0) == Some(made) => normalisation(draft, node)?,
        node if node.is(&["Add", "Mul"]) => {
            let other =
                node.input.iter().find(|name| *name != made).and_then(|name| draft.constants.get(name));
            let Some(values) = other.and_then(|constant| for_channels(constant, channels, rank)) else {
                return Ok(None);
            };
            Some(match node.is(&["Mul"]) {
                true => Affine { factor: values, summand: vec![0.0; channels] },
                false => Affine { factor: vec![1.0; channels], summand: values },
            })
        }
        _ => None,
    })
}

fn normalisation(draft: &Draft, node: &NodeProto) -> Result<Option<Affine>, Defect> {
    let numbers =
        |place: usize| node.at(place).and_then(|name| draft.constants.get(name)).map(Tensor::to_f32);
    let (Some(scale), Some(shift)) = (numbers(1).transpose()?, numbers(2).transpose()?) else {
        return Ok(None);
    };
    let (Some(mean), Some(variance)) = (numbers(3).transpose()?, numbers(4).transpose()?) else {
        return Ok(None);
    };
    if node.only_output().is_none() || node.int("training_mode").unwrap_or(0) != 0 {
        return Ok(None);
    }
    let epsilon = node.float("epsilon").unwrap_or(1e-5);
    let factor: Vec<f32> = scale.iter().zip(&variance).map(|(s, v)| s / (v + epsilon).sqrt()).collect();
    let summand =
        shift.iter().zip(mean.iter().zip(&factor)).map(|(shift, (mean, f))| shift - mean * f).collect();
    Ok(Some(Affine { factor, summand }))
}

/// The values of a constant that has one value per channel, or one for all.
fn for_channels(constant: &Tensor, channels: usize, rank: usize) -> Option<Vec<f32>> {
    let (dims, values) = (constant.dims(), constant.to_f32().ok()?);
    let missing = rank.checked_sub(dims.len())?;
    let only_channels = dims.iter().enumerate().all(|(place, &dim)| dim == 1 || place + missing == 1);
    match values.len() {
        1 => Some(vec![values[0]; channels]),
        count => (only_channels && count == channels).then_some(values),
    }
}

/// Changes the weights of a convolution; returns whether that was possible.
fn absorb(draft: &mut Draft, at: usize, affine: &Affine) -> Result<bool, Defect> {
    let conv = &draft.nodes[at];
    let (Some(weight), bias) = (conv.at(1).and_then(|name| draft.constants.get(name)), conv.at(2)) else {
        return Ok(false);
    };
    let channels = weight.dims()[0];
    let old = match bias.map(|name| draft.constants.get(name)) {
        None => vec![0.0; channels],
        Some(Some(bias)) => bias.to_f32()?,
        Some(None) => return Ok(false),
    };
    if [affine.factor.len(), affine.summand.len(), old.len()] != [channels; 3] || weight.is_empty() {
        return Ok(false);
    }
    let each = weight.len() / channels;
    let values = weight.to_f32()?;
    let scaled = values.iter().enumerate().map(|(place, value)| value * affine.factor[place / each]);
    let scaled = weight.with_f32(&scaled.collect::<Vec<f32>>())?;
    let parts = old.iter().zip(affine.factor.iter().zip(&affine.summand));
    let bias: Vec<f32> = parts.map(|(bias, (factor, summand))| bias * factor + summand).collect();
    let bias = Tensor::from_f32(&format!("{}.bias", scaled.name()), &[channels], &bias)?;
    let bias = match scaled.datatype() == bias.datatype() {
        true => bias,
        false => return Ok(false),
    };
    draft.constants.insert(scaled.name().to_owned(), scaled);
    let bias = draft.add_constant(bias);
    let inputs = &mut draft.nodes[at].input;
    inputs.resize(3, String::new());
    inputs[2] = bias;
    Ok(true)
}

const ROUNDING: f32 = 1e-5;

/// Replaces decomposed functions with operators.
pub(super) fn gather(draft: &mut Draft) {
    let links = Links::of(draft);
    for at in 0..draft.nodes.len() {
        let Some(sigmoid) = HardSigmoid::at(draft, &links, at) else { continue };
        let HardSigmoid { read, slope, offset, times, last } = sigmoid;
        let settings = || [("alpha", Attribute::Float(slope)), ("beta", Attribute::Float(offset))];
        let made = draft.nodes[last].output[0].clone();
        draft.nodes[last] = match times {
            None => draft.make("HardSigmoid", &[&read], &made, settings()),
            // The product takes the last position, and the sigmoid that of the product, which is behind its inputs.
            Some(product) => {
                let share = draft.fresh(&format!("{made}/share"));
                draft.nodes[product] = draft.make("HardSigmoid", &[&read], &share, settings());
                draft.make("Mul", &[&read, &share], &made, [])
            }
        };
    }
}

/// A hard sigmoid, and possibly a product with its input.
struct HardSigmoid {
    read: String,
    slope: f32,
    offset: f32,
    times: Option<usize>,
    /// The position of the node that makes the result.
    last: usize,
}

impl HardSigmoid {
    /// The hard sigmoid whose `Clip` has this position.
    fn at(draft: &Draft, links: &Links, at: usize) -> Option<Self> {
        let bounds = &draft.nodes[at];
        let (shifted, bounded) = (bounds.at(0)?, bounds.only_output()?);
        let bound = |place: usize, name: &str| match bounds.at(place) {
            Some(name) => number(draft, name),
            None => bounds.float(name),
        };
        let (true, Some(0.0), Some(top)) = (bounds.is(&["Clip"]), bound(1, "min"), bound(2, "max")) else {
            return None;
        };
        let sum = &draft.nodes[links.maker(shifted)?];
        let (read, shift) = with_number(draft, sum, &["Add"])?;
        if links.only_reader(shifted) != Some(at) {
            return None;
        }
        let next = links.only_reader(bounded)?;
        let times = is_product(&draft.nodes[next], read, bounded).then_some(next);
        let (last, scaled) = match times {
            Some(product) => {
                let made = draft.nodes[product].only_output()?;
                (links.only_reader(made)?, made)
            }
            None => (next, bounded),
        };
        let node = &draft.nodes[last];
        let (of, factor) = with_number(draft, node, &["Mul", "Div"])?;
        let is_reversed = node.is(&["Div"]) && node.at(1) == Some(scaled);
        let factor = if node.is(&["Div"]) { factor.recip() } else { factor };
        let reaches_one = (top * factor - 1.0).abs() < ROUNDING;
        (of == scaled && !is_reversed && reaches_one).then(|| Self {
            read: read.to_owned(),
            slope: factor,
            offset: shift * factor,
            times,
            last,
        })
    }
}

fn is_product(node: &NodeProto, one: &str, other: &str) -> bool {
    node.is(&["Mul"])
        && [(0, 1), (1, 0)].iter().any(|&(a, b)| node.at(a) == Some(one) && node.at(b) == Some(other))
}

/// The value and the number of a node of these operators that combines a value with one number.
fn with_number<'a>(draft: &Draft, node: &'a NodeProto, ops: &[&str]) -> Option<(&'a str, f32)> {
    let (left, right) = (node.at(0)?, node.at(1)?);
    if !node.is(ops) {
        return None;
    }
    match (number(draft, left), number(draft, right)) {
        (None, Some(number)) => Some((left, number)),
        (Some(number), None) => Some((right, number)),
        _ => None,
    }
}

/// The number of a constant with one element that does not broaden the value.
fn number(draft: &Draft, name: &str) -> Option<f32> {
    let constant = draft.constants.get(name).filter(|constant| constant.dims().len() < 2)?;
    // Engines have no such operators for doubles.
    if constant.datatype() == DataType::Double {
        return None;
    }
    match constant.to_f32().ok()?[..] {
        [number] => Some(number),
        _ => None,
    }
}
