//! The supported ONNX operators: those that networks can be trained through.
//!
//! [`kernel`] is the one table: it maps a node's operator to its kernel, which is written there if it is one function of
//! Burn. To add an operator: one line here, its cases in `tests/it/golden/make.py`, and in `role.rs` the inputs that are its
//! weights, since others are not trained.

mod elementwise;
mod matmul;
mod norm;
mod pieces;
mod reduce;
mod resize;
pub(super) mod shape;
mod window;

use burn::tensor::activation as burn_activation;
use parm_parity_models::onnx::Node;

use self::elementwise::{binary, comparison, either, logic, unary, variadic};
use self::reduce::{arg, reduction};
use super::kernel::Kernel;
use super::real::{map, with, zip};
use super::{Problem, Real, spec::Spec};

/// Reads and checks a node's settings.
pub(super) fn prepare(node: &Node, opset: i64) -> Result<Kernel, Problem> {
    if !node.domain.is_empty() {
        return Err(Problem::Operator { op: node.op.clone(), opset });
    }
    let spec = Spec::new(node, opset);
    let kernel = kernel(&spec)?;
    spec.finish()?;
    Ok(kernel)
}

fn kernel(spec: &Spec) -> Result<Kernel, Problem> {
    match spec.node.op.as_str() {
        // Arithmetic on floats and on the integers of shape computations.
        "Add" => binary(Real::add, i64::wrapping_add),
        "Sub" => binary(Real::sub, i64::wrapping_sub),
        "Mul" => binary(Real::mul, i64::wrapping_mul),
        // Integers divide towards zero. Their division by zero, which ONNX leaves undefined, gives zero.
        "Div" => binary(Real::div, |a, b| a.checked_div(b).unwrap_or(0)),
        "Mod" => elementwise::modulo(spec),
        "Pow" => elementwise::pow(),
        "Max" => variadic(|a, b| Ok(zip!(a.align(b)?, (x, y) => x.max_pair(y))), i64::max),
        "Min" => variadic(|a, b| Ok(zip!(a.align(b)?, (x, y) => x.min_pair(y))), i64::min),
        "Sum" => variadic(Real::add, i64::wrapping_add),
        "Mean" => elementwise::mean(spec),
        "Abs" => either(|x| map!(x, t => t.abs()), i64::wrapping_abs),
        "Neg" => either(|x| map!(x, t => t.neg()), i64::wrapping_neg),
        "Sign" => either(|x| map!(x, t => t.sign()), i64::signum),

        // Functions of one float.
        "Ceil" => unary(|x| map!(x, t => t.ceil())),
        "Cos" => unary(|x| map!(x, t => t.cos())),
        "Erf" => unary(|x| map!(x, t => t.erf())),
        "Exp" => unary(|x| map!(x, t => t.exp())),
        "Floor" => unary(|x| map!(x, t => t.floor())),
        "HardSwish" => unary(|x| map!(x, t => burn_activation::hard_swish(t))),
        "Log" => unary(|x| map!(x, t => t.log())),
        "Mish" => unary(|x| map!(x, t => burn_activation::mish(t))),
        "Reciprocal" => unary(|x| map!(x, t => t.recip())),
        "Relu" => unary(|x| map!(x, t => burn_activation::relu(t))),
        "Round" => unary(|x| map!(x, t => t.round())),
        "Sigmoid" => unary(|x| map!(x, t => burn_activation::sigmoid(t))),
        "Sin" => unary(|x| map!(x, t => t.sin())),
        "Softplus" => unary(|x| map!(x, t => burn_activation::softplus(t, 1.0))),
        "Softsign" => unary(|x| map!(x, t => burn_activation::softsign(t))),
        "Sqrt" => unary(|x| map!(x, t => t.sqrt())),
        "Tanh" => unary(|x| map!(x, t => t.tanh())),
        "Celu" => elementwise::celu(spec),
        "Clip" => elementwise::clip(spec),
        "Elu" => elementwise::elu(spec),
        "Gelu" => elementwise::gelu(spec),
        "HardSigmoid" => elementwise::hard_sigmoid(spec),
        "LeakyRelu" => elementwise::leaky_relu(spec),
        "LogSoftmax" => {
            elementwise::normalized(spec, |x, at| map!(x, t => burn_activation::log_softmax(t, at)))
        }
        "PRelu" => elementwise::prelu(),
        "Selu" => elementwise::selu(spec),
        "Softmax" => elementwise::normalized(spec, |x, at| map!(x, t => burn_activation::softmax(t, at))),
        "Swish" => elementwise::swish(spec),

        // Comparisons, booleans and selection.
        "Equal" => comparison(|a, b| a == b),
        "Greater" => comparison(|a, b| a > b),
        "GreaterOrEqual" => comparison(|a, b| a >= b),
        "Less" => comparison(|a, b| a < b),
        "LessOrEqual" => comparison(|a, b| a <= b),
        "And" => logic(|a, b| *a && *b),
        "Or" => logic(|a, b| *a || *b),
        "Xor" => logic(|a, b| a != b),
        "Not" => elementwise::not(),
        "Where" => elementwise::choose(),

        // Reductions over axes.
        "ArgMax" => arg(spec, |x, axis| with!(x, t => t.argmax(axis).try_to_vec_as::<i64>().ok())),
        "ArgMin" => arg(spec, |x, axis| with!(x, t => t.argmin(axis).try_to_vec_as::<i64>().ok())),
        "ReduceL1" => reduction(spec, |x, axes| Ok(map!(x, t => t.abs()).sum(axes)), None),
        "ReduceL2" => reduction(spec, |x, axes| Ok(map!(x.clone().mul(x)?.sum(axes), t => t.sqrt())), None),
        "ReduceLogSum" => reduction(spec, |x, axes| Ok(map!(x.sum(axes), t => t.log())), None),
        "ReduceLogSumExp" => reduction(spec, reduce::log_sum_exp, None),
        "ReduceMax" => {
            reduction(spec, reduce::max, Some(|list| list.iter().copied().max().unwrap_or(i64::MIN)))
        }
        "ReduceMean" => reduction(spec, |x, axes| Ok(x.mean(axes)), None),
        "ReduceMin" => {
            reduction(spec, reduce::min, Some(|list| list.iter().copied().min().unwrap_or(i64::MAX)))
        }
        "ReduceProd" => reduction(
            spec,
            |x, axes| Ok(map!(x, t => t.prod_dims(axes))),
            Some(|list| list.iter().fold(1, |product, &n| i64::wrapping_mul(product, n))),
        ),
        "ReduceSum" => reduction(
            spec,
            |x, axes| Ok(x.sum(axes)),
            Some(|list| list.iter().fold(0, |sum, &n| i64::wrapping_add(sum, n))),
        ),
        "ReduceSumSquare" => reduction(spec, |x, axes| Ok(x.clone().mul(x)?.sum(axes)), None),

        // Layers.
        "AveragePool" => window::average(spec),
        "BatchNormalization" => norm::batch(spec),
        "Conv" => window::conv(spec),
        "Gemm" => matmul::gemm(spec),
        "GlobalAveragePool" => window::global_average(),
        "GlobalMaxPool" => window::global_max(),
        "GroupNormalization" => norm::group(spec),
        "InstanceNormalization" => norm::instance(spec),
        "LayerNormalization" => norm::layer(spec),
        "MatMul" => matmul::matmul(),
        "MaxPool" => window::max(spec),
        "Resize" => resize::resize(spec),

        // Shapes, constants, and movements of elements.
        "Cast" => shape::cast(spec),
        "CastLike" => shape::cast_like(spec),
        "Concat" => pieces::concat(spec),
        "Constant" => shape::constant(spec),
        "ConstantOfShape" => shape::constant_of_shape(spec),
        "Dropout" | "Identity" => shape::identity(spec),
        "Expand" => shape::expand(),
        "Flatten" => shape::flatten(spec),
        "Gather" => pieces::gather(spec),
        "Pad" => pieces::pad(spec),
        "Range" => shape::range(),
        "Reshape" => shape::reshape(spec),
        "Shape" => shape::shape(spec),
        "Size" => shape::size(),
        "Slice" => pieces::slice(spec),
        "Split" => pieces::split(spec),
        "Squeeze" => shape::squeeze(spec),
        "Tile" => shape::tile(),
        "Transpose" => shape::transpose(spec),
        "Unsqueeze" => shape::unsqueeze(spec),
        op => Err(Problem::Operator { op: op.into(), opset: spec.opset }),
    }
}
