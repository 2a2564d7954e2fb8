//! Operators that only change dimensions or their order.

use crate::array::count;
use crate::graph::kernel::{Inputs, Kernel, axes, axis};
use crate::graph::problem::{joint, within};
use crate::graph::{Problem, Value, spec::Spec};

/// Also used for `Dropout`: teachers answer without it, and exporters omit it. A parity model imitates answers, which
/// needs no noise.
pub(super) fn identity(spec: &Spec) -> Result<Kernel, Problem> {
    spec.ignore(&["ratio", "seed", "is_test"]);
    spec.outputs(1)?;
    Ok(Box::new(|mut inputs, _| Ok(vec![inputs.value(0)?])))
}

pub(super) fn reshape(spec: &Spec) -> Result<Kernel, Problem> {
    let zero_is_zero = spec.flag("allowzero")?;
    let fixed = spec.ints("shape")?; // before operator set 5
    Ok(Box::new(move |mut inputs, _| {
        let value = inputs.value(0)?;
        let wanted = inputs.optional_ints(1)?.or_else(|| fixed.clone());
        let wanted = wanted.ok_or(Problem::MissingInput { at: 1 })?;
        let shape = resolve(&value.shape(), &wanted, zero_is_zero)?;
        Ok(vec![value.reshape(&shape)?])
    }))
}

/// A zero copies the input's dimension, one -1 is inferred.
fn resolve(input: &[usize], wanted: &[i64], zero_is_zero: bool) -> Result<Vec<usize>, Problem> {
    let misfit = || Problem::Size { what: "shape", values: wanted.into(), shape: input.into() };
    let mut shape = Vec::with_capacity(wanted.len());
    for (at, &dim) in wanted.iter().enumerate() {
        shape.push(match dim {
            0 if !zero_is_zero => *input.get(at).ok_or_else(misfit)?,
            -1 => 1,
            _ => usize::try_from(dim).map_err(|_| misfit())?,
        });
    }
    if let Some(open) = wanted.iter().position(|&dim| dim == -1) {
        let known = count(&shape);
        if known == 0 || !count(input).is_multiple_of(known) {
            return Err(misfit());
        }
        shape[open] = count(input) / known;
    }
    Ok(shape)
}

pub(super) fn flatten(spec: &Spec) -> Result<Kernel, Problem> {
    let from = spec.int("axis", 1)?;
    Ok(Box::new(move |mut inputs, _| {
        let value = inputs.value(0)?;
        let shape = value.shape();
        let at = if from == shape.len() as i64 { shape.len() } else { axis(from, shape.len())? };
        Ok(vec![value.reshape(&[count(&shape[..at]), count(&shape[at..])])?])
    }))
}

pub(super) fn transpose(spec: &Spec) -> Result<Kernel, Problem> {
    let order = spec.ints("perm")?;
    Ok(Box::new(move |mut inputs, _| {
        let value = inputs.value(0)?;
        let rank = value.shape().len();
        let order = match &order {
            Some(order) => axes(order, rank)?,
            None => (0..rank).rev().collect(),
        };
        let mut seen = order.clone();
        seen.sort_unstable();
        if !seen.iter().copied().eq(0..rank) {
            let values = order.iter().map(|&axis| axis as i64).collect();
            return Err(Problem::Size { what: "perm", values, shape: value.shape() });
        }
        Ok(vec![value.permute(&order)])
    }))
}

pub(super) fn squeeze(spec: &Spec) -> Result<Kernel, Problem> {
    let fixed = spec.ints("axes")?;
    Ok(Box::new(move |mut inputs, _| {
        let value = inputs.value(0)?;
        let shape = value.shape();
        let list = inputs.optional_ints(1)?.or_else(|| fixed.clone());
        let gone = match &list {
            Some(list) => axes(list, shape.len())?,
            None => (0..shape.len()).filter(|&axis| shape[axis] == 1).collect(),
        };
        if gone.iter().any(|&axis| shape[axis] != 1) {
            return Err(Problem::Size { what: "axes", values: list.unwrap_or_default(), shape });
        }
        let kept = shape.iter().enumerate().filter(|(at, _)| !gone.contains(at));
        let kept: Vec<usize> = kept.map(|(_, &dim)| dim).collect();
        Ok(vec![value.reshape(&kept)?])
    }))
}

pub(super) fn unsqueeze(spec: &Spec) -> Result<Kernel, Problem> {
    let fixed = spec.ints("axes")?;
    Ok(Box::new(move |mut inputs, _| {
        let value = inputs.value(0)?;
        let list = inputs.optional_ints(1)?.or_else(|| fixed.clone());
        let list = list.ok_or(Problem::MissingInput { at: 1 })?;
        let mut old = value.shape().into_iter();
        let rank = old.len() + list.len();
        let added = axes(&list, rank)?;
        let shape: Vec<usize> =
            (0..rank).map(|at| if added.contains(&at) { 1 } else { old.next().unwrap_or(1) }).collect();
        Ok(vec![value.reshape(&shape)?])
    }))
}

/// The wanted shape and the input's broadcast to each other, so ones in the wanted shape keep the input's size.
pub(super) fn expand() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| {
        let value = inputs.value(0)?;
        let wanted = sizes(&mut inputs, 1, &value)?;
        let shape = joint(&value.shape(), &wanted)?;
        Ok(vec![value.expand(&shape)?])
    }))
}

pub(super) fn tile() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| {
        let value = inputs.value(0)?;
        let repeats = sizes(&mut inputs, 1, &value)?;
        let shape = value.shape();
        if repeats.len() != shape.len() {
            return Err(Problem::Broadcast { left: shape, right: repeats });
        }
        let tiled: Vec<usize> =
            shape.iter().zip(&repeats).map(|(&size, &times)| size.saturating_mul(times)).collect();
        within(&tiled)?;
        let axes = repeats.iter().enumerate().filter(|(_, times)| **times != 1);
        let tiled = axes.fold(value, |value, (axis, &times)| {
            let indices: Vec<usize> = (0..shape[axis] * times).map(|at| at % shape[axis]).collect();
            value.select(axis, &indices)
        });
        Ok(vec![tiled])
    }))
}

/// A list of sizes given as an input.
fn sizes(inputs: &mut Inputs, at: usize, value: &Value) -> Result<Vec<usize>, Problem> {
    let list = inputs.ints(at)?.into_data();
    let sizes: Option<Vec<usize>> = list.iter().map(|&size| usize::try_from(size).ok()).collect();
    sizes.ok_or_else(|| Problem::Size { what: "shape", values: list, shape: value.shape() })
}
