//! Activations with settings, and the softmaxes.

use burn::tensor::activation as burn_activation;

use super::elementwise::unary;
use crate::array::count;
use crate::graph::kernel::{Kernel, axis, one};
use crate::graph::real::map;
use crate::graph::{Problem, Real, spec::Spec};

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
