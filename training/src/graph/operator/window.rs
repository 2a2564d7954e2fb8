//! Sliding windows of convolutions and pools: sizes, strides and padding.

use crate::graph::native::Sliding;
use crate::graph::problem::within;
use crate::graph::{Problem, spec::Spec};

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
    pub(super) fn sliding(&self, input: &[usize]) -> Option<Sliding> {
        let input = [input[0], input[1]];
        let mut output = [0; 2];
        for (axis, output) in output.iter_mut().enumerate() {
            let reach = (self.kernel[axis].checked_sub(1)?) * self.dilations[axis] + 1;
            let room = (input[axis] + self.pads[axis].0 + self.pads[axis].1).checked_sub(reach)?;
            *output = room / self.strides[axis] + 1;
        }
        let before = self.pads.map(|(before, _)| before);
        let Self { kernel, strides, dilations, .. } = *self;
        Some(Sliding { kernel, strides, dilations, before, input, output })
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
