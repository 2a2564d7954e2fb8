//! ONNX's operators, in one table: how each treats its values, where a layer's weights have their channels, and what a
//! node costs. What a node computes is no part of it: engines tell that.
//!
//! Rules about graphs ask here instead of naming operators, so a new operator is known to all of them. No operator is a
//! value of a larger enumeration: [`Kind::Other`] is everything that no rule knows.

use super::proto::NodeProto;
use super::rewrite::Draft;
use super::{DataType, Tensor};

/// How an operator treats its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function of each value; further inputs are settings.
    Unary,
    /// Each value as it is, possibly in another type: no effect in inference.
    Same,
    /// Combines values element by element.
    Joint,
    /// Works on the picture of each channel.
    Pool,
    /// Numbers per channel in inputs behind the first.
    Scaled,
    /// Moves values.
    Moved,
    /// Reduces along axes.
    Reduced,
    /// Mixes channels by a weight: see [`Layer`].
    Layer,
    /// The same, step by step.
    Recurrent,
    /// Computes with quantised weights.
    Quantised,
    /// Answers truths.
    Truth,
    /// Answers whole numbers: sizes or places.
    Count,
    /// Any other.
    Other,
}

impl Kind {
    /// The kind of a node.
    pub fn of(node: &NodeProto) -> Self {
        if !matches!(node.domain.as_str(), "" | "ai.onnx") {
            return Self::Other;
        }
        match node.op_type.as_str() {
            "Identity" | "Relu" | "Neg" | "Abs" | "Sqrt" | "Exp" | "Log" | "Tanh" | "Sigmoid"
            | "LeakyRelu" | "Elu" | "Softplus" | "Reciprocal" | "Erf" | "HardSigmoid" | "HardSwish"
            | "Gelu" | "Selu" | "Celu" | "Mish" | "Softsign" | "Clip" => Self::Unary,
            "Cast" | "Dropout" => Self::Same,
            "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Max" | "Min" | "Sum" | "PRelu" => Self::Joint,
            "MaxPool" | "AveragePool" | "LpPool" => Self::Pool,
            "GlobalMaxPool" | "GlobalAveragePool" | "GlobalLpPool" => Self::Pool,
            "BatchNormalization" | "InstanceNormalization" | "LayerNormalization" => Self::Scaled,
            "Flatten" | "Reshape" | "Squeeze" | "Unsqueeze" | "Transpose" => Self::Moved,
            "ReduceMean" | "ReduceSum" | "ReduceMax" | "ReduceMin" => Self::Reduced,
            "Conv" | "Gemm" | "MatMul" => Self::Layer,
            "LSTM" | "GRU" | "RNN" => Self::Recurrent,
            "QLinearConv" | "QLinearMatMul" | "ConvInteger" | "MatMulInteger" | "DequantizeLinear" => {
                Self::Quantised
            }
            "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "Not" | "And" | "Or"
            | "Xor" | "IsNaN" | "IsInf" => Self::Truth,
            "Shape" | "Size" | "NonZero" | "ArgMax" | "ArgMin" => Self::Count,
            _ => Self::Other,
        }
    }

    /// Whether each value of the output depends on the values at its place alone.
    pub fn is_by_value(self) -> bool {
        matches!(self, Self::Unary | Self::Joint)
    }
}

/// The operators of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerOp {
    /// A convolution.
    Conv,
    /// A product of rows with a matrix.
    Gemm,
    /// A product of any value with a matrix.
    MatMul,
    /// A recurrent layer. It makes the channels of several gates.
    Recurrent,
}

/// A layer whose constant weight, its input 1, mixes the channels of its input 0. Its bias is input 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The axis of the channels in its values: 1, or -1 for the last.
    pub axis: i64,
    /// The weight's axis of the channels that it reads.
    pub reads: usize,
    /// The weight's axis of the channels that it makes.
    pub makes: usize,
    /// The operator.
    pub op: LayerOp,
    /// Groups of channels; 1 for all but convolutions.
    pub groups: i64,
    /// Whether zeros around a picture must remain zeros, so that no constant may be added to its values.
    pub is_padded: bool,
}

impl Layer {
    /// Reads a node as such a layer.
    pub fn of(draft: &Draft, node: &NodeProto) -> Option<Self> {
        let rank = draft.constants.get(node.at(1)?)?.dims().len();
        let layer = |op, axis, reads, makes| Self { op, axis, reads, makes, groups: 1, is_padded: false };
        let transposed = |name: &str| node.int(name).unwrap_or(0) != 0;
        Some(match (Kind::of(node), node.op_type.as_str(), rank) {
            (Kind::Layer, "Conv", 3..) => {
                let groups = node.int("group").unwrap_or(1);
                Self { groups, is_padded: is_padded(node), ..layer(LayerOp::Conv, 1, 1, 0) }
            }
            (Kind::Layer, "Gemm", 2) if !transposed("transA") => {
                let reads = usize::from(transposed("transB"));
                layer(LayerOp::Gemm, 1, reads, 1 - reads)
            }
            (Kind::Layer, "MatMul", 2) => layer(LayerOp::MatMul, -1, 0, 1),
            (Kind::Recurrent, _, 3) => layer(LayerOp::Recurrent, -1, 2, 1),
            _ => return None,
        })
    }

    /// The same for layers whose channels can be widened or cut: the weight mixes all of them, and the bias is constant.
    pub fn whole(draft: &Draft, node: &NodeProto) -> Option<Self> {
        let has_constant_bias = node.at(2).is_none_or(|bias| draft.constants.contains_key(bias));
        let layer = Self::of(draft, node).filter(|layer| layer.groups == 1 && has_constant_bias)?;
        (layer.op != LayerOp::Recurrent).then_some(layer)
    }

    /// The same for layers that can be quantised and cut: 32-bit weights, at most a number per channel as bias, no factor,
    /// and a varying input.
    pub fn plain(draft: &Draft, node: &NodeProto) -> Option<Self> {
        let layer = Self::of(draft, node).filter(|layer| layer.op != LayerOp::Recurrent)?;
        let constant = |place: usize| node.at(place).and_then(|name| draft.constants.get(name));
        let is_float = |tensor: &&Tensor| tensor.datatype() == DataType::Float && !tensor.is_empty();
        let weight = constant(1).filter(is_float)?;
        let made = weight.dims()[layer.makes];
        let has_plain_bias =
            node.at(2).is_none() || constant(2).filter(is_float).is_some_and(|bias| bias.len() == made);
        let is_unscaled = ["alpha", "beta"].iter().all(|name| node.float(name).unwrap_or(1.0) == 1.0);
        let varies = constant(0).is_none() && node.only_output().is_some();
        (has_plain_bias && is_unscaled && varies).then_some(layer)
    }

    /// The axis of the channels in a value of this rank.
    pub fn axis_of(&self, rank: usize) -> usize {
        if self.axis == 1 { 1 } else { rank.saturating_sub(1) }
    }

    /// Whether each channel is convolved by itself.
    pub fn is_depthwise(&self, weight: &[usize]) -> bool {
        self.op == LayerOp::Conv && weight[1] == 1 && self.groups == weight[0] as i64
    }
}

fn is_padded(node: &NodeProto) -> bool {
    let is_automatic = node.text("auto_pad").is_some_and(|pad| !matches!(pad.as_str(), "NOTSET" | "VALID"));
    is_automatic || node.ints("pads").is_some_and(|pads| pads.iter().any(|pad| *pad != 0))
}

/// The axes, counted from 0, that a node of an operator with an attribute or input `axes` names for a value of this rank;
/// `None` if they are computed or left out.
pub fn axes(draft: &Draft, node: &NodeProto, rank: i64) -> Option<Vec<i64>> {
    let axes = match (node.ints("axes"), node.at(1)) {
        (Some(axes), _) => axes.to_vec(),
        (None, Some(name)) => draft.constants.get(name)?.to_i64().ok()?,
        (None, None) => return None,
    };
    Some(axes.into_iter().map(|axis| if axis < 0 { axis + rank } else { axis }).collect())
}

/// The multiplications of a node; any other operation on a value counts as one. `None` if sizes are unknown.
pub fn multiplications<'a>(node: &NodeProto, sizes: impl Fn(&str) -> Option<&'a [usize]>) -> Option<f64> {
    let count = |dims: &[usize]| dims.iter().product::<usize>() as f64;
    // Some exporters assemble weights from slices, so their sizes are those of values.
    let of = |place: usize| sizes(node.at(place)?);
    let each = match (Kind::of(node), node.op_type.as_str()) {
        (Kind::Layer, "Conv") => count(of(1)?.get(1..)?),
        (Kind::Layer, "Gemm") => {
            let axis = usize::from(node.int("transA").unwrap_or(0) == 0);
            *of(0)?.get(axis)? as f64
        }
        (Kind::Layer, _) => *of(0)?.last()? as f64,
        (_, "ConvTranspose") => return Some(count(of(0)?) * count(of(1)?.get(1..)?)),
        // Each step's input and state are multiplied with matrices.
        (Kind::Recurrent, _) => {
            let input = of(0)?;
            return Some(count(&input[..input.len().checked_sub(1)?]) * (count(of(1)?) + count(of(2)?)));
        }
        (Kind::Moved, op) if op != "Transpose" => return Some(0.0),
        (_, "Shape" | "Identity" | "Constant") => return Some(0.0),
        _ => 1.0,
    };
    let made = node.output.iter().find(|name| !name.is_empty())?;
    Some(count(sizes(made)?) * each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recurrent_layer_multiplies_each_step() {
        let input = ["x", "w", "r"].map(str::to_owned).to_vec();
        let output = vec!["y".into()];
        let node = NodeProto { op_type: "LSTM".into(), input, output, ..NodeProto::default() };
        let sizes: [(&str, &[usize]); 3] = [("x", &[5, 2, 4]), ("w", &[1, 12, 4]), ("r", &[1, 12, 3])];
        let of = |name: &str| sizes.iter().find(|(own, _)| *own == name).map(|(_, dims)| *dims);
        assert_eq!(multiplications(&node, of), Some(10.0 * 84.0));
    }
}
