//! Linear operators with constant weights that map channels to channels.

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Tensor};

use crate::graph::NodeExt;

/// The axis of the channels in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Second,
    Last,
}

impl Axis {
    /// The axis in a value of this rank.
    pub(super) fn at(self, rank: usize) -> usize {
        match self {
            Self::Second => 1,
            Self::Last => rank.saturating_sub(1),
        }
    }
}

/// A linear operator. The weight is input 1, the bias input 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Linear {
    /// The weight's axis of the input channels.
    pub(super) reads: usize,
    /// The weight's axis of the output channels.
    pub(super) makes: usize,
    /// The channels' axis in both values.
    pub(super) axis: Axis,
    /// Whether a constant can be added to the outputs: not if zeros around a picture must remain zeros.
    pub(super) is_shiftable: bool,
}

impl Linear {
    pub(super) fn of(draft: &Draft, node: &NodeProto) -> Option<Self> {
        let constant = |place: usize| node.at(place).and_then(|name| draft.constants.get(name));
        let weight =
            constant(1).filter(|weight| weight.datatype() == DataType::Float && !weight.is_empty())?;
        if constant(0).is_some() || node.only_output().is_none() {
            return None;
        }
        let rank = weight.dims().len();
        let linear = |reads, makes, axis| Self { reads, makes, axis, is_shiftable: true };
        let made = |axis: usize| weight.dims()[axis];
        let has_plain_bias = |width: usize| {
            let is_plain = |bias: &Tensor| bias.datatype() == DataType::Float && bias.len() == width;
            node.at(2).is_none() || constant(2).is_some_and(is_plain)
        };
        if node.is(&["Conv"]) && rank > 2 && node.int("group").unwrap_or(1) == 1 && has_plain_bias(made(0)) {
            return Some(Self { is_shiftable: is_unpadded(node), ..linear(1, 0, Axis::Second) });
        }
        let unscaled = ["alpha", "beta"].iter().all(|name| node.float(name).unwrap_or(1.0) == 1.0);
        if node.is(&["Gemm"]) && rank == 2 && unscaled && node.int("transA").unwrap_or(0) == 0 {
            let reads = usize::from(node.int("transB").unwrap_or(0) != 0);
            return has_plain_bias(made(1 - reads)).then(|| linear(reads, 1 - reads, Axis::Second));
        }
        (node.is(&["MatMul"]) && rank == 2).then(|| linear(0, 1, Axis::Last))
    }
}

/// Whether a convolution is depthwise: it works on each channel alone.
pub(super) fn is_depthwise(draft: &Draft, node: &NodeProto) -> bool {
    let weight = node.at(1).and_then(|name| draft.constants.get(name));
    node.is(&["Conv"])
        && weight.is_some_and(|weight| {
            let dims = weight.dims();
            dims.len() > 2 && dims[1] == 1 && node.int("group") == Some(dims[0] as i64)
        })
}

fn is_unpadded(node: &NodeProto) -> bool {
    let is_automatic = node.text("auto_pad").is_some_and(|pad| !matches!(pad.as_str(), "NOTSET" | "VALID"));
    !is_automatic && node.ints("pads").is_none_or(|pads| pads.iter().all(|pad| *pad == 0))
}
