//! Two-dimensional convolutions on the processor, in loops of this crate.
//!
//! Training a residual network spends most of its time in convolutions. Burn's processor backend differentiates them as
//! further convolutions with windows as large as the image, which takes two to three times as long. Here a convolution and both
//! derivatives are matrix products over gathered windows ([`columns`]), image by image, so that the windows stay in the
//! cache. All other layers are Burn's, and so are convolutions on other devices.
//!
//! [`tape`] adds a convolution to the computation graph of gradients; the convolution itself works on slices.

mod columns;
mod conv;
mod product;
mod sliding;
mod tape;

use burn::tensor::Tensor;

pub(crate) use sliding::Sliding;
pub(crate) use tape::conv2d;

/// Whether a tensor's elements are in this process's memory.
pub(crate) fn is_here<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.device().without_autodiff() == burn::tensor::Device::flex()
}
