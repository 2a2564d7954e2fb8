//! 8-bit copies of a network, made from a few rows without labels.
//!
//! Convolutions and products with constant weights read 8-bit numbers, and convolutions write them; the rest stays. Pairs of
//! `QuantizeLinear` and `DequantizeLinear` (QDQ) express this in the graph: every engine can run them, and engines
//! with 8-bit kernels replace them. Weights are symmetric with a scale per channel; values have one scale and a zero
//! point, as unsigned bytes, for which processors have instructions.
//!
//! The range of values that the 256 numbers cover decides the accuracy. A wide range makes all values coarse, a
//! narrow one cuts the largest, which matter most. The extremes of the calibration rows are too wide: on magika they
//! cost three points of agreement. Instead a share of the values is cut at either end (percentile 99.99). The best
//! share differs between networks, so several are tried on the calibration rows, and the one with the smallest change
//! of the outputs is used; a graph with few values gets a share per value (two of magika's differ by a factor of ten:
//! worth one point). If only the maximum of a value is read, the range of the maxima is measured.
//!
//! Processors without VNNI saturate sums of two products at 16 bits: a residual network's copy agreed on 95 % of the
//! pictures there, and on 99.8 % with VNNI. Therefore weights with half the steps are tried too ([`Steps`]), and are
//! used if the outputs come far nearer.
//!
//! Rejected: scaling each channel of which only maxima are read to its span on calibration rows, which cuts the
//! values that set rare rows apart (2.6 points on magika); ranges with the smallest squared error per value, which
//! treat the range of maxima as noise; ranges per channel of values, for which engines have no kernels.

mod ranges;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Kind, Layer as Weighted, LayerOp};

use crate::graph::Links;

pub(crate) use ranges::{Cuts, Ranges, gather, measured};
pub(crate) use write::{Steps, quantise};

/// A layer that is to compute in 8 bits.
#[derive(Clone, Debug)]
struct Layer {
    at: usize,
    /// The weight's axis of the outputs.
    axis: usize,
    /// The quantised output, if any: the layer's own or that of the rectifier behind it.
    output: Option<String>,
}

/// Layers and values of a graph.
#[derive(Clone, Debug, Default)]
struct Points {
    layers: Vec<Layer>,
    /// Quantised values, and for each the value whose range it uses.
    values: BTreeMap<String, String>,
}

impl Points {
    fn of(draft: &Draft, links: &Links) -> Self {
        let mut points = Self::default();
        for (at, node) in draft.nodes.iter().enumerate() {
            let Some(layer) = Weighted::plain(draft, node) else { continue };
            let (axis, is_conv) = (layer.makes, layer.op == LayerOp::Conv);
            let (Some(read), Some(made)) = (node.at(0), node.only_output()) else { continue };
            points.values.insert(read.into(), String::new());
            let output = is_conv.then(|| rectified(draft, links, made).to_owned());
            if let Some(output) = &output {
                points.values.insert(output.clone(), String::new());
            }
            points.layers.push(Layer { at, axis, output });
        }
        let quantised: BTreeSet<String> = points.values.keys().cloned().collect();
        for (value, measured) in &mut points.values {
            *measured = measured_at(draft, links, &quantised, value);
        }
        points
    }
}

/// The rectifier's output if only a rectifier reads the value, otherwise the value: engines fuse rectifiers.
fn rectified<'a>(draft: &'a Draft, links: &Links, made: &'a str) -> &'a str {
    let reader = links.only_reader(made).map(|at| &draft.nodes[at]);
    let is_zero = |node: &NodeProto, place: usize, name: &str| {
        let constant = node.at(place).and_then(|name| draft.constants.get(name)?.to_f32().ok());
        constant.map_or_else(|| node.float(name), |values| values.first().copied()) == Some(0.0)
    };
    let rectifier =
        reader.filter(|node| node.is(&["Relu"]) || (node.is(&["Clip"]) && is_zero(node, 1, "min")));
    rectifier.and_then(|node| node.only_output()).unwrap_or(made)
}

/// The value whose range a quantised value uses. A moved value uses the range of its source, so that no step is
/// rounded twice. A value of which only maxima are read uses the range of the maxima.
fn measured_at(draft: &Draft, links: &Links, quantised: &BTreeSet<String>, value: &str) -> String {
    let mut at = value;
    // Values that are only moved have the steps of their source.
    let moves =
        |node: &&NodeProto| Kind::of(node) == Kind::Moved || node.is(&["MaxPool", "GlobalMaxPool", "Slice"]);
    while let Some(node) = links.maker(at).map(|at| &draft.nodes[at]).filter(moves) {
        let Some(read) = node.at(0) else { break };
        at = read;
        if quantised.contains(at) {
            return maxima(draft, links, at).to_owned();
        }
    }
    maxima(draft, links, value).to_owned()
}

/// The output of a global maximum if nothing else reads the value, otherwise the value.
fn maxima<'a>(draft: &'a Draft, links: &Links, value: &'a str) -> &'a str {
    let last = to_maxima(draft, links, value).pop();
    last.and_then(|at| draft.nodes[at].only_output()).unwrap_or(value)
}

/// The nodes from a value to its global maximum if nothing else reads it. Empty without such a maximum.
fn to_maxima(draft: &Draft, links: &Links, value: &str) -> Vec<usize> {
    let (mut at, mut nodes) = (value, Vec::new());
    // On the way, values may only be moved.
    while let Some((place, node)) = links.only_reader(at).map(|place| (place, &draft.nodes[place])) {
        let Some(made) = node.only_output() else { break };
        nodes.push(place);
        if node.is(&["GlobalMaxPool", "ReduceMax"]) {
            return nodes;
        }
        if !node.is(&["Reshape", "Squeeze", "Unsqueeze", "Transpose"]) {
            break;
        }
        at = made;
    }
    Vec::new()
}

/// The convolutions, and the products with matrices, by their outputs.
pub(crate) fn kinds(draft: &Draft) -> [BTreeSet<String>; 2] {
    let layers = Points::of(draft, &Links::of(draft)).layers;
    let (convolutions, products): (Vec<&Layer>, _) = layers.iter().partition(|layer| layer.output.is_some());
    [convolutions, products].map(|layers| {
        layers.iter().filter_map(|layer| draft.nodes[layer.at].only_output().map(str::to_owned)).collect()
    })
}
