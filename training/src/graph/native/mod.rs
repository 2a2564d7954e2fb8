//! Layers of images on the processor, in loops of our own.
//!
//! Training spends its time in convolutions, and Burn's backend for the processor differentiates them as further
//! convolutions, whose windows are as large as the image. Here a convolution and both of its derivatives are matrix
//! products over gathered windows ([`columns`]), image by image, so that what is gathered stays in the cache.
//! Pooling and batch normalisation are loops over their tensors that read and write each element once or twice, where
//! tensor operations do so ten times. On any other device the layers are Burn's own.
//!
//! [`tape`] is how a layer enters the history that gradients are taken from; the layers themselves know slices only.

mod columns;
mod conv;
mod norm;
mod pool;
mod product;
mod sliding;
mod tape;

use burn::tensor::Tensor;

pub(crate) use sliding::Sliding;
pub(crate) use tape::{batch_norm, conv2d, max_pool2d};

/// Whether a tensor is one that these layers can compute: its elements lie in this program's memory.
pub(crate) fn is_here<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.device().without_autodiff() == burn::tensor::Device::flex()
}
