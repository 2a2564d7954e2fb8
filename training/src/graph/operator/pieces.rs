//! Operators that split and join tensors: slices, parts, joins, padding, lookups by index.

use burn::tensor::ops::PadMode;

use crate::array::Array;
use crate::graph::kernel::{Inputs, Kernel, axes, axis};
use crate::graph::problem::within;
use crate::graph::real::map;
use crate::graph::{Problem, Value, spec::Spec};

/// Starts, ends, axes and steps were attributes before operator set 10 and are inputs since.
pub(super) fn slice(spec: &Spec) -> Result<Kernel, Problem> {
    let fixed = [spec.ints("starts")?, spec.ints("ends")?, spec.ints("axes")?];
    Ok(Box::new(move |mut inputs, _| {
        let value = inputs.value(0)?;
        let shape = value.shape();
        let mut list = |at: usize| -> Result<Option<Vec<i64>>, Problem> {
            Ok(inputs.optional_ints(at)?.or_else(|| fixed.get(at - 1)?.clone()))
        };
        let (starts, ends, over, steps) = (list(1)?, list(2)?, list(3)?, list(4)?);
        let starts = starts.ok_or(Problem::MissingInput { at: 1 })?;
        let ends = ends.ok_or(Problem::MissingInput { at: 2 })?;
        let over = axes(&over.unwrap_or_else(|| (0..starts.len() as i64).collect()), shape.len())?;
        let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
        if ends.len() != starts.len() || over.len() != starts.len() || steps.len() != starts.len() {
            return Err(Problem::Size { what: "starts", values: starts, shape });
        }
        let cuts = over.into_iter().zip(starts.into_iter().zip(ends)).zip(steps);
        let mut value = value;
        for ((axis, (start, end)), step) in cuts {
            value = value.select(axis, &progression(start, end, step, shape[axis])?);
        }
        Ok(vec![value])
    }))
}

/// The indices of a slice; bounds beyond the ends are clipped, negative ones count from the end.
fn progression(start: i64, end: i64, step: i64, size: usize) -> Result<Vec<usize>, Problem> {
    let length = size as i64;
    let from_end = |bound: i64| if bound < 0 { bound.saturating_add(length) } else { bound };
    let (start, end) = (from_end(start), from_end(end));
    let indices: Vec<i64> = match step {
        0 => return Err(Problem::Index { index: 0, size }),
        1.. => (start.clamp(0, length)..end.clamp(0, length)).step_by(step as usize).collect(),
        _ => {
            let (first, last) = (start.clamp(-1, length - 1), end.clamp(-1, length - 1));
            ((last + 1)..=first).rev().step_by(step.unsigned_abs() as usize).collect()
        }
    };
    Ok(indices.into_iter().map(|index| index as usize).collect())
}

/// Equal parts, or parts of given sizes: an attribute before operator set 13, an input since.
pub(super) fn split(spec: &Spec) -> Result<Kernel, Problem> {
    let over = spec.int("axis", 0)?;
    let fixed = spec.ints("split")?;
    spec.ignore(&["num_outputs"]); // says what the number of outputs says
    let parts = spec.node.outputs.len().max(1);
    Ok(Box::new(move |mut inputs, _| {
        let value = inputs.value(0)?;
        let shape = value.shape();
        let axis = axis(over, shape.len())?;
        let size = shape[axis];
        let even = || {
            (0..parts)
                .map(|at| (size.div_ceil(parts)).min(size - (size.div_ceil(parts) * at).min(size)) as i64)
        };
        let sizes = inputs.optional_ints(1)?.or_else(|| fixed.clone()).unwrap_or_else(|| even().collect());
        let sum = sizes.iter().try_fold(0_i64, |sum, &part| sum.checked_add(part));
        if sizes.iter().any(|&part| part < 0) || sum != Some(size as i64) {
            return Err(Problem::Size { what: "split", values: sizes, shape });
        }
        let mut start = 0;
        let cut = |&part: &i64| {
            let indices: Vec<usize> = (start..start + part as usize).collect();
            start += part as usize;
            value.clone().select(axis, &indices)
        };
        Ok(sizes.iter().map(cut).collect())
    }))
}

pub(super) fn concat(spec: &Spec) -> Result<Kernel, Problem> {
    let along = spec.int("axis", 1)?;
    Ok(Box::new(move |inputs: Inputs, _| {
        let parts: Vec<Value> = inputs.all().collect();
        let rank = parts.first().map_or(0, |part| part.shape().len());
        Ok(vec![Value::concat(parts, axis(along, rank)?)?])
    }))
}

/// The fill of a border.
#[derive(Clone, Copy)]
enum Border {
    Constant,
    Reflect,
    Edge,
    Wrap,
}

/// Widths and the value were attributes before operator set 11 and are inputs since.
pub(super) fn pad(spec: &Spec) -> Result<Kernel, Problem> {
    let border = match spec.string("mode", "constant")? {
        "constant" => Border::Constant,
        "reflect" => Border::Reflect,
        "edge" => Border::Edge,
        "wrap" => Border::Wrap,
        other => return Err(spec.value("mode", other.into(), "constant, reflect, edge or wrap")),
    };
    let fixed = spec.ints("pads")?;
    let fixed_value = spec.float("value", 0.0)?;
    Ok(Box::new(move |mut inputs, _| {
        let value = inputs.value(0)?;
        let shape = value.shape();
        let widths =
            inputs.optional_ints(1)?.or_else(|| fixed.clone()).ok_or(Problem::MissingInput { at: 1 })?;
        let fill = inputs.optional_number(2)?.unwrap_or(fixed_value);
        let all: Vec<i64> = (0..shape.len() as i64).collect();
        let over = axes(&inputs.optional_ints(3)?.unwrap_or(all), shape.len())?;
        if widths.len() != 2 * over.len() {
            return Err(Problem::Size { what: "pads", values: widths, shape });
        }
        let mut pairs = vec![(0, 0); shape.len()];
        over.iter().enumerate().for_each(|(at, &axis)| pairs[axis] = (widths[at], widths[over.len() + at]));
        Ok(vec![padded(value, &pairs, border, fill)?])
    }))
}

fn padded(mut value: Value, pairs: &[(i64, i64)], border: Border, fill: f32) -> Result<Value, Problem> {
    let shape = value.shape();
    let new = |(&size, &(before, after)): (&usize, &(i64, i64))| {
        let add = |width: i64| usize::try_from(width).unwrap_or(0);
        let cuts_at_most_all = before.min(after) >= -(size as i64);
        cuts_at_most_all.then(|| size.saturating_add(add(before)).saturating_add(add(after)))
    };
    let Some(sizes) = shape.iter().zip(pairs).map(new).collect::<Option<Vec<usize>>>() else {
        let values = pairs.iter().flat_map(|&(before, after)| [before, after]).collect();
        return Err(Problem::Size { what: "pads", values, shape });
    };
    within(&sizes)?;
    for (axis, &(before, after)) in pairs.iter().enumerate() {
        let size = value.shape()[axis] as i64;
        // A negative width cuts. A constant border only cuts here; its fill comes afterwards, in one step.
        let (first, last) = match border {
            Border::Constant => (-before.min(0), size + after.min(0)),
            _ => (-before, size + after),
        };
        if (first, last) == (0, size) {
            continue;
        }
        let indices: Result<Vec<usize>, Problem> = (first..last).map(|at| source(border, at, size)).collect();
        value = value.select(axis, &indices?);
    }
    let widths: Vec<(usize, usize)> =
        pairs.iter().map(|&(before, after)| (before.max(0) as usize, after.max(0) as usize)).collect();
    if !matches!(border, Border::Constant) || widths.iter().all(|pair| *pair == (0, 0)) {
        return Ok(value);
    }
    Ok(Value::Real(map!(value.real()?, t => t.pad(widths, PadMode::Constant(fill)))))
}

/// The element that a border position repeats.
fn source(border: Border, at: i64, size: i64) -> Result<usize, Problem> {
    let index = match border {
        Border::Edge => at.clamp(0, size - 1),
        Border::Reflect if at < 0 => -at,
        Border::Reflect if at >= size => 2 * (size - 1) - at,
        Border::Wrap => at.rem_euclid(size.max(1)),
        _ => at,
    };
    let fits = usize::try_from(index).ok().filter(|_| index < size);
    fits.ok_or(Problem::Index { index: at, size: size as usize })
}

/// Picks along one axis by integers: rows of an embedding, single columns, dimensions of a shape.
pub(super) fn gather(spec: &Spec) -> Result<Kernel, Problem> {
    let over = spec.int("axis", 0)?;
    Ok(Box::new(move |mut inputs, _| {
        let (value, indices) = (inputs.value(0)?, inputs.ints(1)?);
        let mut shape = value.shape();
        let axis = axis(over, shape.len())?;
        let picked: Vec<usize> = resolve(&indices, shape[axis])?;
        shape.splice(axis..=axis, indices.shape().iter().copied());
        Ok(vec![value.select(axis, &picked).reshape(&shape)?])
    }))
}

fn resolve(indices: &Array<i64>, size: usize) -> Result<Vec<usize>, Problem> {
    let one = |&index: &i64| {
        let from_start = if index < 0 { index + size as i64 } else { index };
        usize::try_from(from_start).ok().filter(|&at| at < size).ok_or(Problem::Index { index, size })
    };
    indices.data().iter().map(one).collect()
}
