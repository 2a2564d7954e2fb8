//! Constants, shapes as values, conversions between kinds, and operators that only change dimensions or their order.

use parm_parity_models::onnx::{DataType, Tensor};

use crate::array::{Array, count};
use crate::graph::kernel::{Inputs, Kernel, Pass, axes, axis};
use crate::graph::problem::{joint, within};
use crate::graph::spec::Spec;
use crate::graph::{Problem, Real, Value};

/// Reads a constant of a file. Floats of other widths are converted to 32 bits.
pub(in crate::graph) fn constant_of(
    tensor: &Tensor,
    device: &burn::tensor::Device,
) -> Result<Value, Problem> {
    let shape = tensor.dims().to_vec();
    let fits = "the tensor was checked when it was read";
    Ok(match tensor.datatype() {
        DataType::Bool => {
            let data = tensor.to_i64()?.into_iter().map(|n| n != 0).collect();
            Value::Bools(Array::new(shape, data).expect(fits))
        }
        kind if kind.is_float() => {
            Value::Real(Real::upload(&Array::new(shape, tensor.to_f32()?).expect(fits), device)?)
        }
        _ => Value::Ints(Array::new(shape, tensor.to_i64()?).expect(fits)),
    })
}

pub(super) fn constant(spec: &Spec) -> Result<Kernel, Problem> {
    spec.ignore(&["value", "value_float", "value_floats", "value_int", "value_ints"]);
    let tensor = spec.node.constant()?.ok_or(Problem::MissingInput { at: 0 })?;
    Ok(Box::new(move |_, pass: &mut Pass| Ok(vec![constant_of(&tensor, &pass.device)?])))
}

/// A given shape filled with one value, zero unless the attribute says another.
pub(super) fn constant_of_shape(spec: &Spec) -> Result<Kernel, Problem> {
    let zero = || Tensor::from_f32("", &[1], &[0.0]).map_err(Problem::from);
    let fill = spec.tensor("value")?.map_or_else(zero, Ok)?;
    Ok(Box::new(move |mut inputs, pass| {
        let shape = inputs.ints(0)?.into_data();
        let sizes: Option<Vec<usize>> = shape.iter().map(|&dim| usize::try_from(dim).ok()).collect();
        let sizes = sizes.ok_or(Problem::Size { what: "shape", values: shape, shape: vec![] })?;
        let one = constant_of(&fill, &pass.device)?.reshape(&vec![1; sizes.len()])?;
        Ok(vec![one.expand(&sizes)?])
    }))
}

pub(super) fn shape(spec: &Spec) -> Result<Kernel, Problem> {
    let (start, end) = (spec.int("start", 0)?, spec.int("end", i64::MAX)?);
    Ok(Box::new(move |mut inputs, _| {
        let shape: Vec<i64> = inputs.value(0)?.shape().iter().map(|&dim| dim as i64).collect();
        let rank = shape.len() as i64;
        let bound = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize;
        let (start, end) = (bound(start), bound(end));
        Ok(vec![Value::Ints(Array::vector(shape[start..end.max(start)].to_vec()))])
    }))
}

pub(super) fn size() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| {
        let count: usize = inputs.value(0)?.shape().iter().product();
        Ok(vec![Value::Ints(Array::scalar(count as i64))])
    }))
}

/// Integers from a start up to a limit.
pub(super) fn range() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| {
        let mut number = |at: usize| {
            let array = inputs.ints(at)?;
            array.data().first().copied().ok_or(Problem::MissingInput { at })
        };
        let (start, limit, delta) = (number(0)?, number(1)?, number(2)?);
        if delta == 0 {
            return Err(Problem::Index { index: 0, size: 0 });
        }
        let span = if delta > 0 {
            i128::from(limit) - i128::from(start)
        } else {
            i128::from(start) - i128::from(limit)
        };
        let count = span.max(0).unsigned_abs().div_ceil(delta.unsigned_abs().into());
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        within(&[count])?;
        let values = (0..count).map(|at| start.wrapping_add(delta.wrapping_mul(at as i64))).collect();
        Ok(vec![Value::Ints(Array::vector(values))])
    }))
}

/// The target type of a conversion.
#[derive(Clone, Copy)]
enum Kind {
    Real,
    Ints,
    Bools,
}

impl Kind {
    fn of(datatype: DataType) -> Option<Self> {
        match datatype {
            DataType::Bool => Some(Kind::Bools),
            kind if kind.is_float() => Some(Kind::Real),
            kind if kind.is_integer() => Some(Kind::Ints),
            _ => None,
        }
    }
}

/// Conversions between types. Floats stay, since all have 32 bits here. Floats become integers by
/// truncation.
pub(super) fn cast(spec: &Spec) -> Result<Kernel, Problem> {
    spec.ignore(&["saturate"]); // of 8-bit floats
    spec.ignore(&["round_mode"]); // of 8-bit floats
    let to = spec.int("to", 0)?;
    let datatype = i32::try_from(to).ok().and_then(|code| DataType::try_from(code).ok());
    let kind = datatype.and_then(Kind::of);
    let kind = kind.ok_or_else(|| spec.value("to", to.to_string(), "floats, integers or truth values"))?;
    Ok(Box::new(move |mut inputs, pass| Ok(vec![converted(inputs.value(0)?, kind, pass)?])))
}

pub(super) fn cast_like(spec: &Spec) -> Result<Kernel, Problem> {
    spec.ignore(&["saturate"]);
    spec.ignore(&["round_mode"]);
    Ok(Box::new(|mut inputs, pass| {
        let kind = match inputs.value(1)? {
            Value::Real(_) => Kind::Real,
            Value::Ints(_) => Kind::Ints,
            Value::Bools(_) => Kind::Bools,
        };
        Ok(vec![converted(inputs.value(0)?, kind, pass)?])
    }))
}

fn converted(value: Value, kind: Kind, pass: &Pass) -> Result<Value, Problem> {
    let upload = |array: &Array<f32>| Ok::<_, Problem>(Value::Real(Real::upload(array, &pass.device)?));
    Ok(match (value, kind) {
        (Value::Real(real), Kind::Real) => Value::Real(real),
        (Value::Real(real), Kind::Ints) => Value::Ints(real.download().map(|&x| x as i64)),
        (Value::Real(real), Kind::Bools) => Value::Bools(real.download().map(|&x| x != 0.0)),
        (Value::Ints(array), Kind::Real) => upload(&array.map(|&n| n as f32))?,
        (Value::Ints(array), Kind::Ints) => Value::Ints(array),
        (Value::Ints(array), Kind::Bools) => Value::Bools(array.map(|&n| n != 0)),
        (Value::Bools(array), Kind::Real) => upload(&array.map(|&b| f32::from(u8::from(b))))?,
        (Value::Bools(array), Kind::Ints) => Value::Ints(array.map(|&b| i64::from(b))),
        (Value::Bools(array), Kind::Bools) => Value::Bools(array),
    })
}

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
