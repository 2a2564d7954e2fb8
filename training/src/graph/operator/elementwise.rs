//! Operators element by element: arithmetic, activations, comparisons and selection.
//!
//! Arithmetic works on floats, with gradients, and on the integers of shape computations. Booleans live in host memory: in
//! networks they are masks made from shapes and integer inputs. A comparison of floats copies them from the device; no
//! gradient flows through it.

use burn::tensor::{Bool, Tensor, TensorData, activation as burn_activation};

use crate::array::{Array, count};
use crate::graph::kernel::{Inputs, Kernel, axis, one};
use crate::graph::problem::joint;
use crate::graph::real::{map, zip};
use crate::graph::spec::Spec;
use crate::graph::{Problem, Real, Value};

type OnReals = fn(Real, Real) -> Result<Real, Problem>;
type OnInts = fn(i64, i64) -> i64;

/// A kernel with one tensor in and one of the same shape out.
pub(super) fn unary(function: impl Fn(Real) -> Real + Send + Sync + 'static) -> Result<Kernel, Problem> {
    Ok(Box::new(move |mut inputs, _| one(function(inputs.real(0)?))))
}

/// The remainder has the divisor's sign; with `fmod` the dividend's.
pub(super) fn modulo(spec: &Spec) -> Result<Kernel, Problem> {
    let fmod: OnInts = |a, b| a.checked_rem(b).unwrap_or(0);
    let floored: OnInts =
        |a, b| a.checked_rem(b).map_or(0, |r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r });
    let on_ints = if spec.flag("fmod")? { fmod } else { floored };
    Ok(Box::new(move |mut inputs, _| {
        let (left, right) = (inputs.ints(0)?, inputs.ints(1)?);
        Ok(vec![Value::Ints(combine(&left, &right, on_ints)?)])
    }))
}

pub(super) fn mean(spec: &Spec) -> Result<Kernel, Problem> {
    let share = 1.0 / spec.node.inputs.len().max(1) as f32;
    Ok(Box::new(move |inputs, _| {
        let mut parts = inputs.all().map(Value::real);
        let first = parts.next().ok_or(Problem::MissingInput { at: 0 })??;
        let sum = parts.try_fold(first, |sum, part| sum.add(part?))?;
        one(sum.scale(share))
    }))
}

/// Powers. An exponent of one element, as exporters write it, uses fast exact methods.
pub(super) fn pow() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| {
        let base = inputs.value(0)?;
        let exponent = match inputs.value(1)? {
            Value::Ints(array) => Value::Real(Real::upload(&array.map(|&n| n as f32), &device(&base)?)?),
            other => other,
        };
        let (base, exponent) = (base.real()?, exponent.real()?);
        if exponent.count() != 1 || exponent.rank() > base.rank() {
            return one(zip!(base.align(exponent)?, (x, y) => x.powf(y)));
        }
        let exponent = exponent.download().data()[0];
        one(match exponent {
            1.0 => base,
            2.0 => base.clone().mul(base)?,
            0.5 => map!(base, t => t.sqrt()),
            _ => map!(base, t => t.powf_scalar(exponent)),
        })
    }))
}

pub(super) fn binary(on_reals: OnReals, on_ints: OnInts) -> Result<Kernel, Problem> {
    Ok(Box::new(move |mut inputs, _| {
        let (left, right) = (inputs.value(0)?, inputs.value(1)?);
        Ok(vec![apply(left, right, on_reals, on_ints)?])
    }))
}

pub(super) fn variadic(on_reals: OnReals, on_ints: OnInts) -> Result<Kernel, Problem> {
    Ok(Box::new(move |inputs: Inputs, _| {
        let mut parts = inputs.all();
        let first = parts.next().ok_or(Problem::MissingInput { at: 0 })?;
        Ok(vec![parts.try_fold(first, |sum, part| apply(sum, part, on_reals, on_ints))?])
    }))
}

pub(super) fn either(on_reals: fn(Real) -> Real, on_ints: fn(i64) -> i64) -> Result<Kernel, Problem> {
    Ok(Box::new(move |mut inputs, _| {
        Ok(vec![match inputs.value(0)? {
            Value::Ints(array) => Value::Ints(array.map(|&n| on_ints(n))),
            other => Value::Real(on_reals(other.real()?)),
        }])
    }))
}

fn apply(left: Value, right: Value, on_reals: OnReals, on_ints: OnInts) -> Result<Value, Problem> {
    Ok(match (left, right) {
        (Value::Ints(left), Value::Ints(right)) => Value::Ints(combine(&left, &right, on_ints)?),
        (left, right) => Value::Real(on_reals(left.real()?, right.real()?)?),
    })
}

fn combine(left: &Array<i64>, right: &Array<i64>, function: OnInts) -> Result<Array<i64>, Problem> {
    let shape = joint(left.shape(), right.shape())?;
    Ok(left.zip(right, &shape, |&a, &b| function(a, b)))
}

fn device(value: &Value) -> Result<burn::tensor::Device, Problem> {
    let real = value.clone().real()?;
    Ok(crate::graph::real::with!(real, tensor => tensor.device()))
}

pub(super) fn leaky_relu(spec: &Spec) -> Result<Kernel, Problem> {
    let alpha = f64::from(spec.float("alpha", 0.01)?);
    unary(move |x| map!(x, t => burn_activation::leaky_relu(t, alpha)))
}

/// One slope per channel, or any shape that broadcasts.
pub(super) fn prelu() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| {
        let (x, slope) = (inputs.real(0)?, inputs.real(1)?);
        let negative = map!(x.clone(), t => t.clamp_max(0.0));
        let positive = map!(x, t => burn_activation::relu(t));
        one(positive.add(negative.mul(slope)?)?)
    }))
}

pub(super) fn elu(spec: &Spec) -> Result<Kernel, Problem> {
    scaled_elu(spec.float("alpha", 1.0)?, 1.0, 1.0)
}

pub(super) fn celu(spec: &Spec) -> Result<Kernel, Problem> {
    let alpha = spec.float("alpha", 1.0)?;
    scaled_elu(alpha, 1.0, alpha)
}

pub(super) fn selu(spec: &Spec) -> Result<Kernel, Problem> {
    scaled_elu(spec.float("alpha", 1.673_263_2)?, spec.float("gamma", 1.050_701)?, 1.0)
}

/// `gamma * (max(x, 0) + alpha * (exp(min(x, 0) / divisor) - 1))`. The minimum is taken first, because the exponential of
/// a large x would turn the gradient into infinity times zero, as it does in Burn's functions.
fn scaled_elu(alpha: f32, gamma: f32, divisor: f32) -> Result<Kernel, Problem> {
    unary(move |x| {
        map!(x, t => {
            let negative = t.clone().clamp_max(0.0).div_scalar(divisor).exp().sub_scalar(1.0).mul_scalar(alpha);
            burn_activation::relu(t).add(negative).mul_scalar(gamma)
        })
    })
}

pub(super) fn hard_sigmoid(spec: &Spec) -> Result<Kernel, Problem> {
    let (alpha, beta) = (f64::from(spec.float("alpha", 0.2)?), f64::from(spec.float("beta", 0.5)?));
    unary(move |x| map!(x, t => burn_activation::hard_sigmoid(t, alpha, beta)))
}

pub(super) fn swish(spec: &Spec) -> Result<Kernel, Problem> {
    let alpha = spec.float("alpha", 1.0)?;
    unary(move |x| map!(x, t => burn_activation::sigmoid(t.clone().mul_scalar(alpha)).mul(t)))
}

pub(super) fn gelu(spec: &Spec) -> Result<Kernel, Problem> {
    match spec.string("approximate", "none")? {
        "none" => unary(|x| map!(x, t => burn_activation::gelu(t))),
        "tanh" => unary(|x| map!(x, t => burn_activation::gelu_approximate(t))),
        other => Err(spec.value("approximate", other.into(), "none or tanh")),
    }
}

/// Bounds were attributes before operator set 11 and are inputs since.
pub(super) fn clip(spec: &Spec) -> Result<Kernel, Problem> {
    let (low, high) = (spec.float("min", f32::MIN)?, spec.float("max", f32::MAX)?);
    Ok(Box::new(move |mut inputs, _| {
        let x = inputs.real(0)?;
        let low = inputs.optional_number(1)?.unwrap_or(low);
        let high = inputs.optional_number(2)?.unwrap_or(high);
        one(map!(x, t => t.clamp(low, high)))
    }))
}

/// A softmax. Before operator set 13 it ran over all dimensions from `axis` on, flattened; since then over one.
pub(super) fn normalized(spec: &Spec, function: fn(Real, usize) -> Real) -> Result<Kernel, Problem> {
    let flattened = spec.opset < 13;
    let wanted = spec.int("axis", if flattened { 1 } else { -1 })?;
    Ok(Box::new(move |mut inputs, _| {
        let x = inputs.real(0)?;
        let shape = x.shape();
        let axis = axis(wanted, shape.len())?;
        if !flattened {
            return one(function(x, axis));
        }
        let rows = x.reshape(&[count(&shape[..axis]), count(&shape[axis..])])?;
        one(function(rows, 1).reshape(&shape)?)
    }))
}

/// Compares two floats; also used for integers below 2^53.
pub(super) fn comparison(test: fn(f64, f64) -> bool) -> Result<Kernel, Problem> {
    Ok(Box::new(move |mut inputs, _| {
        let (left, right) = (numbers(inputs.value(0)?), numbers(inputs.value(1)?));
        let shape = joint(left.shape(), right.shape())?;
        Ok(vec![Value::Bools(left.zip(&right, &shape, |&a, &b| test(a, b)))])
    }))
}

/// Combines two booleans.
pub(super) fn logic(test: fn(&bool, &bool) -> bool) -> Result<Kernel, Problem> {
    Ok(Box::new(move |mut inputs, _| {
        let (left, right) = (inputs.value(0)?.bools()?, inputs.value(1)?.bools()?);
        let shape = joint(left.shape(), right.shape())?;
        Ok(vec![Value::Bools(left.zip(&right, &shape, test))])
    }))
}

pub(super) fn not() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| Ok(vec![Value::Bools(inputs.value(0)?.bools()?.map(|b| !b))])))
}

/// Takes from the second input where the first is true, from the third elsewhere.
pub(super) fn choose() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| {
        let mask = inputs.value(0)?.bools()?;
        let (left, right) = (inputs.value(1)?, inputs.value(2)?);
        let shape = joint(mask.shape(), &joint(&left.shape(), &right.shape())?)?;
        let mask = mask.expand(&shape);
        let (left, right) = (left.expand(&shape)?, right.expand(&shape)?);
        Ok(vec![match (left, right) {
            (Value::Ints(a), Value::Ints(b)) => Value::Ints(pick(&mask, &a, &b)),
            (Value::Bools(a), Value::Bools(b)) => Value::Bools(pick(&mask, &a, &b)),
            (a, b) => Value::Real(masked(&mask, a.real()?, b.real()?)),
        }])
    }))
}

/// Combines equally shaped tensors: `left` where the mask is true and `right` elsewhere.
fn masked(mask: &Array<bool>, left: Real, right: Real) -> Real {
    fn upload<const D: usize>(mask: &Array<bool>, like: &Tensor<D>) -> Tensor<D, Bool> {
        let data = TensorData::new(mask.data().to_vec(), like.shape());
        Tensor::from_data(data, &like.device())
    }
    zip!((left, right), (a, b) => { let mask = upload(mask, &b); b.mask_where(mask, a) })
}

fn pick<T: Clone>(mask: &Array<bool>, left: &Array<T>, right: &Array<T>) -> Array<T> {
    let pairs = left.data().iter().zip(right.data());
    let data = mask.data().iter().zip(pairs).map(|(&yes, (a, b))| if yes { a.clone() } else { b.clone() });
    Array::new(mask.shape().into(), data.collect()).expect("all three have one shape")
}

fn numbers(value: Value) -> Array<f64> {
    match value {
        Value::Real(real) => real.download().map(|&x| f64::from(x)),
        Value::Ints(array) => array.map(|&n| n as f64),
        Value::Bools(array) => array.map(|&b| f64::from(u8::from(b))),
    }
}
