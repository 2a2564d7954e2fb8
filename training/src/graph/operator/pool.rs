//! Maximum and average over windows, or over all of space.

use burn::tensor::module;
use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};

use super::window::{Resolved, Window};
use crate::graph::kernel::{Kernel, one};
use crate::graph::problem::filled;
use crate::graph::real::map;
use crate::graph::{Problem, Real, spec::Spec};

pub(super) fn max(spec: &Spec) -> Result<Kernel, Problem> {
    spec.outputs(1)?; // indices of the maxima: exporters do not use them for inference
    spec.ignore(&["storage_order"]); // of the indices
    let window = window(spec)?;
    let ceil_mode = spec.flag("ceil_mode")?;
    Ok(Box::new(move |mut inputs, _| {
        let x = inputs.real(0)?;
        let shape = x.shape();
        one(match shape.len() {
            3 => Real::R3(module::max_pool1d(
                x.rank3()?,
                max_options(window.resolve::<1>(&shape[2..], None)?, ceil_mode),
            )),
            _ => {
                let x = x.rank4()?;
                let window = window.resolve::<2>(&shape[2..], None)?;
                Real::R4(module::max_pool2d(x, max_options(window, ceil_mode)))
            }
        })
    }))
}

pub(super) fn average(spec: &Spec) -> Result<Kernel, Problem> {
    let window = window(spec)?;
    let ceil_mode = spec.flag("ceil_mode")?;
    let count_include_pad = spec.flag("count_include_pad")?;
    let options = AveragePool { ceil_mode, count_include_pad };
    Ok(Box::new(move |mut inputs, _| {
        let x = inputs.real(0)?;
        let shape = x.shape();
        one(match shape.len() {
            3 => Real::R3(module::avg_pool1d(
                x.rank3()?,
                options.with(window.resolve::<1>(&shape[2..], None)?)?,
            )),
            _ => {
                let x = x.rank4()?;
                Real::R4(module::avg_pool2d(x, options.with(window.resolve::<2>(&shape[2..], None)?)?))
            }
        })
    }))
}

pub(super) fn global_average() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| {
        let x = inputs.real(0)?;
        let axes: Vec<usize> = (2..x.rank()).collect();
        one(x.mean(&axes))
    }))
}

pub(super) fn global_max() -> Result<Kernel, Problem> {
    Ok(Box::new(|mut inputs, _| {
        let x = inputs.real(0)?;
        let axes: Vec<usize> = (2..x.rank()).collect();
        filled(&x.shape())?;
        one(map!(x, tensor => tensor.max_dims(&axes)))
    }))
}

#[derive(Clone, Copy)]
struct AveragePool {
    ceil_mode: bool,
    count_include_pad: bool,
}

impl AveragePool {
    fn with<const N: usize>(self, window: Resolved<N>) -> Result<AvgPoolOptions<N>, Problem> {
        if window.dilations != [1; N] {
            let values = window.dilations.iter().map(|&value| value as i64).collect();
            return Err(Problem::Size { what: "dilations", values, shape: vec![1; N] });
        }
        Ok(AvgPoolOptions::new(window.kernel)
            .with_stride(window.strides)
            .with_padding_pairs(window.pads)
            .with_count_include_pad(self.count_include_pad)
            .with_ceil_mode(self.ceil_mode))
    }
}

fn max_options<const N: usize>(window: Resolved<N>, ceil_mode: bool) -> MaxPoolOptions<N> {
    MaxPoolOptions::new(window.kernel)
        .with_stride(window.strides)
        .with_padding_pairs(window.pads)
        .with_dilation(window.dilations)
        .with_ceil_mode(ceil_mode)
}

/// Burn pools over one or two axes.
fn window(spec: &Spec) -> Result<Window, Problem> {
    let window = Window::read(spec)?;
    match window.kernel.len() {
        1 | 2 if !window.kernel.contains(&0) => Ok(window),
        _ => Err(spec.value("kernel_shape", format!("{:?}", window.kernel), "a window over one or two axes")),
    }
}
