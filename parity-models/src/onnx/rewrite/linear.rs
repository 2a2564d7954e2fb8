//! The layers that mix features, and the axes along which their weights widen.

use super::super::proto::NodeProto;
use super::draft::{Draft, int, is_one_of};

/// A layer whose constant weight mixes the features of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Linear {
    /// Position of the data among the node's inputs.
    pub(super) data: usize,
    /// The data's axis of features.
    pub(super) data_axis: i64,
    /// The weight's name.
    pub(super) weight: String,
    /// The weight's axis of input features.
    pub(super) weight_in: usize,
    /// The output side, for layers that can produce a prediction.
    pub(super) out: Option<Out>,
}

/// The output side of a layer, which can be widened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Out {
    /// The output's axis of features.
    pub(super) axis: i64,
    /// The weight's axis of output features.
    pub(super) weight_axis: usize,
    /// The bias's name.
    pub(super) bias: Option<String>,
    /// Whether the output is known to have two dimensions.
    pub(super) is_flat: bool,
}

impl Linear {
    /// Reads `node` as such a layer. `None` for other nodes and for grouped convolutions: each group reads only its own
    /// channels, so that a wider one would still not mix two slots.
    pub(super) fn of(draft: &Draft, node: &NodeProto) -> Option<Self> {
        let constant = |at: usize| node.input.get(at).filter(|name| draft.constants.contains_key(*name));
        let bias_name = node.input.get(2).filter(|name| !name.is_empty());
        let is_bias_constant = bias_name.is_none_or(|name| draft.constants.contains_key(name));
        let weight = constant(1)?.clone();
        let rank = draft.constants[&weight].dims().len();
        let out = |axis, weight_axis, is_flat| {
            is_bias_constant.then(|| Out { axis, weight_axis, bias: bias_name.cloned(), is_flat })
        };
        let layer = |data_axis, weight_in, out| Self { data: 0, data_axis, weight, weight_in, out };
        if is_one_of(node, &["Conv"]) && rank > 2 && int(node, "group").unwrap_or(1) == 1 {
            return Some(layer(1, 1, out(1, 0, false)));
        }
        if is_one_of(node, &["Gemm"]) && rank == 2 && int(node, "transA").unwrap_or(0) == 0 {
            let transposed = int(node, "transB").unwrap_or(0) != 0;
            let (weight_in, weight_out) = if transposed { (1, 0) } else { (0, 1) };
            return Some(layer(1, weight_in, out(1, weight_out, true)));
        }
        if is_one_of(node, &["MatMul"]) && rank == 2 {
            return Some(layer(-1, 0, out(-1, 1, false)));
        }
        if is_one_of(node, &["LSTM", "GRU", "RNN"]) && rank == 3 {
            return Some(layer(-1, 2, None));
        }
        None
    }
}

/// Layers with quantised weights: they cannot be trained, nor repeated without their scales.
pub(super) fn is_quantised(node: &NodeProto) -> bool {
    const QUANTISED: [&str; 5] =
        ["QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "DequantizeLinear"];
    is_one_of(node, &QUANTISED)
}
