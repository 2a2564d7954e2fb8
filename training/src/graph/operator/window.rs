//! Sliding windows: their sizes, strides and padding, the convolutions over one, two or three spatial axes, and the pools
//! over windows or over all of space.

use burn::tensor::module;
use burn::tensor::ops::{AvgPoolOptions, ConvOptions, MaxPoolOptions, PadMode};

use crate::graph::kernel::{Kernel, one};
use crate::graph::problem::{filled, within};
use crate::graph::real::map;
use crate::graph::spec::Spec;
use crate::graph::{Problem, Real, native};

/// A window's settings. Padding may depend on the input's size, so it is resolved when the node runs.
pub(super) struct Window {
    /// Sizes along the spatial axes; empty if the weights define them.
    pub(super) kernel: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    padding: Padding,
}

enum Padding {
    Explicit(Vec<usize>),
    /// Enough padding for an output of the input's size divided by the stride; an odd element goes to the end or, if
    /// not `odd_at_end`, to the beginning.
    Same {
        odd_at_end: bool,
    },
}

/// A window whose sizes are known along `N` spatial axes.
pub(super) struct Resolved<const N: usize> {
    pub(super) kernel: [usize; N],
    pub(super) strides: [usize; N],
    pub(super) dilations: [usize; N],
    pub(super) pads: [(usize, usize); N],
}

impl Resolved<2> {
    /// The window over an image of this size; `None` if it does not fit.
    pub(super) fn sliding(&self, input: &[usize]) -> Option<native::Sliding> {
        let input = [input[0], input[1]];
        let mut output = [0; 2];
        for (axis, output) in output.iter_mut().enumerate() {
            let reach = (self.kernel[axis].checked_sub(1)?) * self.dilations[axis] + 1;
            let room = (input[axis] + self.pads[axis].0 + self.pads[axis].1).checked_sub(reach)?;
            *output = room / self.strides[axis] + 1;
        }
        let before = self.pads.map(|(before, _)| before);
        let Self { kernel, strides, dilations, .. } = *self;
        Some(native::Sliding { kernel, strides, dilations, before, input, output })
    }
}

impl Window {
    pub(super) fn read(spec: &Spec) -> Result<Self, Problem> {
        let padding = match spec.string("auto_pad", "NOTSET")? {
            "NOTSET" | "" => Padding::Explicit(spec.sizes("pads", &[])?),
            "VALID" => Padding::Explicit(Vec::new()),
            "SAME_UPPER" => Padding::Same { odd_at_end: true },
            "SAME_LOWER" => Padding::Same { odd_at_end: false },
            other => {
                let expected = "NOTSET, VALID, SAME_UPPER or SAME_LOWER";
                return Err(spec.value("auto_pad", other.into(), expected));
            }
        };
        if !matches!(padding, Padding::Explicit(_)) || spec.string("auto_pad", "")? == "VALID" {
            spec.ignore(&["pads"]);
        }
        let strides = spec.sizes("strides", &[])?;
        let dilations = spec.sizes("dilations", &[])?;
        if strides.contains(&0) || dilations.contains(&0) {
            return Err(spec.value("strides", format!("{strides:?}"), "a list of positive sizes"));
        }
        Ok(Self { kernel: spec.sizes("kernel_shape", &[])?, strides, dilations, padding })
    }

    /// Resolves values that depend on the input's spatial sizes. `kernel` is the size of the weights, if there are
    /// any.
    pub(super) fn resolve<const N: usize>(
        &self,
        input: &[usize],
        kernel: Option<&[usize]>,
    ) -> Result<Resolved<N>, Problem> {
        let sizes = |what, values: &[usize], shape: &[usize]| {
            let values = values.iter().map(|&value| value as i64).collect();
            Problem::Size { what, values, shape: shape.into() }
        };
        let list = |what: &'static str, values: &[usize], default: usize| {
            if values.is_empty() {
                return Ok([default; N]);
            }
            <[usize; N]>::try_from(values).map_err(|_| sizes(what, values, input))
        };
        let kernel = list("kernel", kernel.unwrap_or(&self.kernel), 1)?;
        let strides = list("strides", &self.strides, 1)?;
        let dilations = list("dilations", &self.dilations, 1)?;
        if kernel.contains(&0) {
            return Err(sizes("kernel", &kernel, input));
        }
        let reach: [usize; N] =
            std::array::from_fn(|i| (kernel[i] - 1).saturating_mul(dilations[i]).saturating_add(1));
        let pads: [(usize, usize); N] = match &self.padding {
            Padding::Explicit(pads) if pads.is_empty() => [(0, 0); N],
            Padding::Explicit(pads) if pads.len() == 2 * N => std::array::from_fn(|i| (pads[i], pads[N + i])),
            Padding::Explicit(pads) => return Err(sizes("pads", pads, input)),
            Padding::Same { odd_at_end } => std::array::from_fn(|i| {
                let output = input[i].div_ceil(strides[i]);
                let total =
                    ((output.max(1) - 1) * strides[i]).saturating_add(reach[i]).saturating_sub(input[i]);
                let (small, large) = (total / 2, total - total / 2);
                if *odd_at_end { (small, large) } else { (large, small) }
            }),
        };
        let padded: [usize; N] =
            std::array::from_fn(|i| input[i].saturating_add(pads[i].0).saturating_add(pads[i].1));
        if (0..N).any(|i| padded[i] < reach[i]) {
            return Err(sizes("kernel", &kernel, input));
        }
        within(&padded)?;
        Ok(Resolved { kernel, strides, dilations, pads })
    }
}

pub(super) fn conv(spec: &Spec) -> Result<Kernel, Problem> {
    let window = Window::read(spec)?;
    let groups = spec.int("group", 1)?;
    let groups = usize::try_from(groups).ok().filter(|&groups| groups > 0);
    let groups = groups.ok_or_else(|| spec.value("group", format!("{groups:?}"), "a positive number"))?;
    Ok(Box::new(move |mut inputs, _| {
        let (x, weight, bias) = (inputs.real(0)?, inputs.real(1)?, inputs.optional_real(2)?);
        one(run(&window, groups, Operands { x, weight, bias })?)
    }))
}

struct Operands {
    x: Real,
    weight: Real,
    bias: Option<Real>,
}

fn run(window: &Window, groups: usize, operands: Operands) -> Result<Real, Problem> {
    let Operands { x, weight, bias } = operands;
    let (input, filters) = (x.shape(), weight.shape());
    let fits = input.len() == filters.len()
        && input.len() >= 3
        && Some(input[1]) == filters[1].checked_mul(groups)
        && filters[0] % groups == 0;
    if !fits {
        return Err(Problem::Broadcast { left: input, right: filters });
    }
    let bias = bias.map(Real::rank1).transpose()?;
    if let Some(bias) = bias.as_ref().filter(|bias| bias.dims()[0] != filters[0]) {
        return Err(Problem::Broadcast { left: bias.dims().to_vec(), right: filters });
    }
    let (spatial, kernel) = (&input[2..], Some(&filters[2..]));
    match input.len() {
        3 => {
            let window = window.resolve::<1>(spatial, kernel)?;
            let options =
                ConvOptions::new_with_padding(window.strides, window.pads, window.dilations, groups);
            Ok(Real::R3(module::conv1d(x.rank3()?, weight.rank3()?, bias, options)))
        }
        4 => {
            let window = window.resolve::<2>(spatial, kernel)?;
            let (x, weight) = (x.rank4()?, weight.rank4()?);
            if let Some(sliding) = window.sliding(spatial).filter(|_| native::is_here(&x)) {
                let output = native::conv2d(x, weight, groups, sliding);
                return Ok(Real::R4(match bias {
                    Some(bias) => output.add(bias.reshape([1, filters[0], 1, 1])),
                    None => output,
                }));
            }
            let options =
                ConvOptions::new_with_padding(window.strides, window.pads, window.dilations, groups);
            Ok(Real::R4(module::conv2d(x, weight, bias, options)))
        }
        5 => {
            // Burn pads three axes only evenly: pad beforehand.
            let window = window.resolve::<3>(spatial, kernel)?;
            let x = map!(x, tensor => tensor.pad(&window.pads[..], PadMode::Constant(0.0)));
            let options = ConvOptions::new(window.strides, [0; 3], window.dilations, groups);
            Ok(Real::R5(module::conv3d(x.rank5()?, weight.rank5()?, bias, options)))
        }
        _ => Err(Problem::Rank { expected: 4, shape: input }),
    }
}

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
