//! The layers of a graph that can be in 8 bits, and the values that become 8-bit numbers.

use std::collections::{BTreeMap, BTreeSet};

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Kind, Layer as Weighted, LayerOp};

use crate::graph::Links;

/// A layer that is to compute in 8 bits.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) at: usize,
    /// The weight's axis of the outputs.
    pub(super) axis: usize,
    /// The quantised output, if any: the layer's own or that of the rectifier behind it.
    pub(super) output: Option<String>,
}

/// Layers and values of a graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Points {
    pub(super) layers: Vec<Layer>,
    /// Quantised values, and for each the value whose range it uses.
    pub(super) values: BTreeMap<String, String>,
}

impl Points {
    pub(super) fn of(draft: &Draft, links: &Links) -> Self {
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
