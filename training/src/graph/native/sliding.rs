//! The geometry of a window over an image.

/// A window that slides over images of two axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sliding {
    pub(crate) kernel: [usize; 2],
    pub(crate) strides: [usize; 2],
    pub(crate) dilations: [usize; 2],
    /// Padding rows above and columns to the left.
    pub(crate) before: [usize; 2],
    /// The image.
    pub(crate) input: [usize; 2],
    /// Number of places of the window.
    pub(crate) output: [usize; 2],
}

impl Sliding {
    /// The places whose tap `at` along `axis` lies inside the image, and where the first of them reads.
    pub(super) fn inside(&self, axis: usize, at: usize) -> (std::ops::Range<usize>, usize) {
        let (stride, size) = (self.strides[axis], self.input[axis]);
        let (offset, before) = (at * self.dilations[axis], self.before[axis]);
        let first = before.saturating_sub(offset).div_ceil(stride).min(self.output[axis]);
        let end = (size + before).saturating_sub(offset).div_ceil(stride).min(self.output[axis]);
        (first..end.max(first), (first * stride + offset).saturating_sub(before))
    }

    pub(super) fn image(&self) -> usize {
        self.input.iter().product()
    }

    pub(super) fn places(&self) -> usize {
        self.output.iter().product()
    }

    pub(super) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// A square window on a square image, with equal padding before and behind.
    #[cfg(test)]
    pub(super) fn square(side: usize, [kernel, stride, dilation, before]: [usize; 4]) -> Self {
        let output = (side + 2 * before - ((kernel - 1) * dilation + 1)) / stride + 1;
        Self {
            kernel: [kernel; 2],
            strides: [stride; 2],
            dilations: [dilation; 2],
            before: [before; 2],
            input: [side; 2],
            output: [output; 2],
        }
    }
}
