//! Replaces decomposed hard sigmoids with operators.
//!
//! Exporters that do not know the operator write `clip(x + 3, 0, 6) / 6`: three passes over a value. `x` times it,
//! the hard swish of small networks for pictures, is a fourth pass. Engines fuse it into the convolution before it,
//! but only as the product of a value and its hard sigmoid.

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, DataType};

use crate::graph::Links;

/// Tolerance for a factor.
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
    /// The product's position.
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

/// Whether a node is the product of these two.
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
