//! Resizing by nearest neighbours or linear interpolation.
//!
//! Each resized axis is interpolated separately: for every output position the host computes the two source elements
//! and the weight between them; the device selects and blends. One piece of differentiable code covers any rank and
//! every coordinate convention of ONNX.

use crate::array::Array;
use crate::graph::kernel::{Inputs, Kernel, axes};
use crate::graph::problem::within;
use crate::graph::{Problem, Real, Value, spec::Spec};

/// The source coordinate of an output position.
#[derive(Clone, Copy)]
enum Coordinates {
    HalfPixel,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
}

/// The value at a fractional coordinate.
#[derive(Clone, Copy)]
enum Blend {
    Linear,
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
}

#[derive(Clone, Copy)]
struct Style {
    coordinates: Coordinates,
    blend: Blend,
}

pub(super) fn resize(spec: &Spec) -> Result<Kernel, Problem> {
    let default = if spec.opset < 11 { "asymmetric" } else { "half_pixel" };
    let coordinates = match spec.string("coordinate_transformation_mode", default)? {
        "half_pixel" => Coordinates::HalfPixel,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        other => {
            let expected = "half_pixel, pytorch_half_pixel, align_corners or asymmetric";
            return Err(spec.value("coordinate_transformation_mode", other.into(), expected));
        }
    };
    let blend = blend(spec, if spec.opset < 11 { "floor" } else { "round_prefer_floor" })?;
    spec.only("antialias", 0, "0")?;
    spec.only("exclude_outside", 0, "0")?;
    spec.ignore(&["cubic_coeff_a"]); // of cubic interpolation
    spec.ignore(&["extrapolation_value"]); // of cropping
    if spec.string("keep_aspect_ratio_policy", "stretch")? != "stretch" {
        let actual = spec.string("keep_aspect_ratio_policy", "")?.to_owned();
        return Err(spec.value("keep_aspect_ratio_policy", actual, "stretch"));
    }
    let over = spec.ints("axes")?;
    let style = Style { coordinates, blend };
    let first = if spec.opset < 11 { 1 } else { 2 }; // a region of interest came in between
    Ok(Box::new(move |mut inputs, _| {
        let x = inputs.real(0)?;
        let over = match &over {
            Some(list) => axes(list, x.rank())?,
            None => (0..x.rank()).collect(),
        };
        let targets = targets(&mut inputs, first, &x, &over)?;
        let resized = targets.into_iter().try_fold(x, |x, (axis, target)| along(x, axis, target, style))?;
        Ok(vec![Value::Real(resized)])
    }))
}

fn blend(spec: &Spec, nearest: &'static str) -> Result<Blend, Problem> {
    let rounding = match spec.string("nearest_mode", nearest)? {
        "round_prefer_floor" => Blend::RoundPreferFloor,
        "round_prefer_ceil" => Blend::RoundPreferCeil,
        "floor" => Blend::Floor,
        "ceil" => Blend::Ceil,
        other => return Err(spec.value("nearest_mode", other.into(), "floor, ceil or a round_prefer mode")),
    };
    match spec.string("mode", "nearest")? {
        "nearest" => Ok(rounding),
        "linear" => Ok(Blend::Linear),
        other => Err(spec.value("mode", other.into(), "nearest or linear")),
    }
}

/// The new size and scale of an axis.
#[derive(Clone, Copy)]
struct NewSize {
    size: usize,
    scale: f64,
}

fn targets(
    inputs: &mut Inputs,
    first: usize,
    x: &Real,
    over: &[usize],
) -> Result<Vec<(usize, NewSize)>, Problem> {
    let shape = x.shape();
    let scales = inputs.optional_real(first)?.map(|scales| scales.download().into_data()).unwrap_or_default();
    if !scales.is_empty() {
        let target = |(&axis, &scale): (&usize, &f32)| {
            let scale = f64::from(scale);
            (axis, NewSize { size: (shape[axis] as f64 * scale).floor() as usize, scale })
        };
        return check(over.iter().zip(&scales).map(target).collect(), over);
    }
    let sizes = inputs.optional_ints(first + 1)?.ok_or(Problem::MissingInput { at: first + 1 })?;
    let target = |(&axis, &size): (&usize, &i64)| {
        let size = usize::try_from(size).unwrap_or(0);
        (axis, NewSize { size, scale: size as f64 / shape[axis] as f64 })
    };
    check(over.iter().zip(&sizes).map(target).collect(), over)
}

fn check(targets: Vec<(usize, NewSize)>, over: &[usize]) -> Result<Vec<(usize, NewSize)>, Problem> {
    let is_usable = |target: &NewSize| target.size > 0 && target.scale.is_finite() && target.scale > 0.0;
    if targets.len() != over.len() || !targets.iter().all(|(_, target)| is_usable(target)) {
        let values = targets.iter().map(|(_, target)| target.size as i64).collect();
        return Err(Problem::Size { what: "sizes", values, shape: over.into() });
    }
    Ok(targets)
}

fn along(x: Real, axis: usize, target: NewSize, style: Style) -> Result<Real, Problem> {
    let size = x.shape()[axis];
    let mut resized = x.shape();
    resized[axis] = target.size;
    within(&resized)?;
    if target.size == size && (target.scale - 1.0).abs() < 1e-9 {
        return Ok(x);
    }
    let sources: Vec<Origin> = (0..target.size).map(|at| source(at, size, target, style)).collect();
    let low: Vec<usize> = sources.iter().map(|source| source.low).collect();
    if sources.iter().all(|source| source.weight == 0.0) {
        return Ok(x.select(axis, &low));
    }
    let high: Vec<usize> = sources.iter().map(|source| (source.low + 1).min(size - 1)).collect();
    let mut shape = vec![1; x.rank()];
    shape[axis] = target.size;
    let weights = Array::new(shape, sources.iter().map(|source| source.weight).collect());
    let weights = weights.expect("one weight for each position");
    let device = crate::graph::real::with!(&x, tensor => tensor.device());
    let rest = Real::upload(&weights.map(|weight| 1.0 - weight), &device)?;
    let low = x.clone().select(axis, &low).mul(rest)?;
    low.add(x.select(axis, &high).mul(Real::upload(&weights, &device)?)?)
}

/// The element before a coordinate and the share of the one after it.
struct Origin {
    low: usize,
    weight: f32,
}

fn source(at: usize, size: usize, target: NewSize, style: Style) -> Origin {
    let at = at as f64;
    let coordinate = match style.coordinates {
        Coordinates::HalfPixel => (at + 0.5) / target.scale - 0.5,
        Coordinates::PytorchHalfPixel if target.size <= 1 => 0.0,
        Coordinates::PytorchHalfPixel => (at + 0.5) / target.scale - 0.5,
        Coordinates::AlignCorners if target.size <= 1 => 0.0,
        Coordinates::AlignCorners => at * (size as f64 - 1.0) / (target.size as f64 - 1.0),
        Coordinates::Asymmetric => at / target.scale,
    };
    let last = size as f64 - 1.0;
    let nearest = match style.blend {
        Blend::Linear => {
            let coordinate = coordinate.clamp(0.0, last);
            return Origin { low: coordinate as usize, weight: coordinate.fract() as f32 };
        }
        Blend::RoundPreferFloor => (coordinate - 0.5).ceil(),
        Blend::RoundPreferCeil => (coordinate + 0.5).floor(),
        Blend::Floor => coordinate.floor(),
        Blend::Ceil => coordinate.ceil(),
    };
    Origin { low: nearest.clamp(0.0, last) as usize, weight: 0.0 }
}
