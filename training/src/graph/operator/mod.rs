//! The supported ONNX operators: those that networks can be trained through.
//!
//! One table maps a node's operator to the function that reads its settings and returns its kernel. To add an
//! operator: one function, one line here, and its cases in `tests/it/golden/make.py`.

mod activation;
mod compare;
mod conv;
mod elementwise;
mod layout;
mod matmul;
mod norm;
mod pieces;
mod pool;
mod recurrent;
mod reduce;
mod resize;
pub(super) mod shape;
mod window;

use parm_parity_models::onnx::Node;

use super::kernel::Kernel;
use super::{Problem, spec::Spec};

type Prepare = fn(&Spec) -> Result<Kernel, Problem>;

/// Reads and checks a node's settings.
pub(super) fn prepare(node: &Node, opset: i64) -> Result<Kernel, Problem> {
    let unknown = || Problem::Operator { op: node.op.clone(), opset };
    let prepare = if node.domain.is_empty() { find(&node.op) } else { None }.ok_or_else(unknown)?;
    let spec = Spec::new(node, opset);
    let kernel = prepare(&spec)?;
    spec.finish()?;
    Ok(kernel)
}

fn find(op: &str) -> Option<Prepare> {
    TABLE.binary_search_by(|(name, _)| name.cmp(&op)).ok().map(|at| TABLE[at].1)
}

/// In alphabetical order.
const TABLE: &[(&str, Prepare)] = &[
    ("Abs", elementwise::abs),
    ("Add", elementwise::add),
    ("And", compare::and),
    ("ArgMax", reduce::arg_max),
    ("ArgMin", reduce::arg_min),
    ("AveragePool", pool::average),
    ("BatchNormalization", norm::batch),
    ("Cast", shape::cast),
    ("CastLike", shape::cast_like),
    ("Ceil", elementwise::ceil),
    ("Celu", activation::celu),
    ("Clip", activation::clip),
    ("Concat", pieces::concat),
    ("Constant", shape::constant),
    ("ConstantOfShape", shape::constant_of_shape),
    ("Conv", conv::conv),
    ("Cos", elementwise::cos),
    ("Div", elementwise::div),
    ("Dropout", layout::identity),
    ("Elu", activation::elu),
    ("Equal", compare::equal),
    ("Erf", elementwise::erf),
    ("Exp", elementwise::exp),
    ("Expand", layout::expand),
    ("Flatten", layout::flatten),
    ("Floor", elementwise::floor),
    ("GRU", recurrent::gru),
    ("Gather", pieces::gather),
    ("Gelu", activation::gelu),
    ("Gemm", matmul::gemm),
    ("GlobalAveragePool", pool::global_average),
    ("GlobalMaxPool", pool::global_max),
    ("Greater", compare::greater),
    ("GreaterOrEqual", compare::greater_or_equal),
    ("GroupNormalization", norm::group),
    ("HardSigmoid", activation::hard_sigmoid),
    ("HardSwish", activation::hard_swish),
    ("Identity", layout::identity),
    ("InstanceNormalization", norm::instance),
    ("LSTM", recurrent::lstm),
    ("LayerNormalization", norm::layer),
    ("LeakyRelu", activation::leaky_relu),
    ("Less", compare::less),
    ("LessOrEqual", compare::less_or_equal),
    ("Log", elementwise::log),
    ("LogSoftmax", activation::log_softmax),
    ("MatMul", matmul::matmul),
    ("Max", elementwise::maximum),
    ("MaxPool", pool::max),
    ("Mean", elementwise::mean),
    ("Min", elementwise::minimum),
    ("Mish", activation::mish),
    ("Mod", elementwise::modulo),
    ("Mul", elementwise::mul),
    ("Neg", elementwise::neg),
    ("Not", compare::not),
    ("OneHot", shape::one_hot),
    ("Or", compare::or),
    ("PRelu", activation::prelu),
    ("Pad", pieces::pad),
    ("Pow", elementwise::pow),
    ("Range", shape::range),
    ("Reciprocal", elementwise::reciprocal),
    ("ReduceL1", reduce::l1),
    ("ReduceL2", reduce::l2),
    ("ReduceLogSum", reduce::log_sum),
    ("ReduceLogSumExp", reduce::log_sum_exp),
    ("ReduceMax", reduce::max),
    ("ReduceMean", reduce::mean),
    ("ReduceMin", reduce::min),
    ("ReduceProd", reduce::prod),
    ("ReduceSum", reduce::sum),
    ("ReduceSumSquare", reduce::sum_square),
    ("Relu", activation::relu),
    ("Reshape", layout::reshape),
    ("Resize", resize::resize),
    ("Round", elementwise::round),
    ("Selu", activation::selu),
    ("Shape", shape::shape),
    ("Sigmoid", activation::sigmoid),
    ("Sign", elementwise::sign),
    ("Sin", elementwise::sin),
    ("Size", shape::size),
    ("Slice", pieces::slice),
    ("Softmax", activation::softmax),
    ("Softplus", activation::softplus),
    ("Softsign", activation::softsign),
    ("Split", pieces::split),
    ("Sqrt", elementwise::sqrt),
    ("Squeeze", layout::squeeze),
    ("Sub", elementwise::sub),
    ("Sum", elementwise::sum),
    ("Swish", activation::swish),
    ("Tanh", elementwise::tanh),
    ("Tile", layout::tile),
    ("Transpose", layout::transpose),
    ("Unsqueeze", layout::unsqueeze),
    ("Upsample", resize::upsample),
    ("Where", compare::choose),
    ("Xor", compare::xor),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operator_table_is_sorted() {
        assert!(TABLE.is_sorted_by(|(a, _), (b, _)| a < b));
    }
}
