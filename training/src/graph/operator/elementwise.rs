//! Arithmetic element by element, on floats with gradients and on the integers of shape computations.

use crate::array::Array;
use crate::graph::kernel::{Inputs, Kernel, one};
use crate::graph::problem::joint;
use crate::graph::real::{map, zip};
use crate::graph::{Problem, Real, Value, spec::Spec};

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
