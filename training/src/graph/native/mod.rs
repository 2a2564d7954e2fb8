//! Image layers on the processor, in loops of this crate.
//!
//! Training spends most of its time in convolutions. Burn's processor backend differentiates them as further
//! convolutions with windows as large as the image. Here a convolution and both derivatives are matrix products over
//! gathered windows ([`columns`]), image by image, so that the windows stay in the cache. Pooling and batch
//! normalisation are loops that read and write each element once or twice; tensor operations do so ten times. On
//! other devices the layers are Burn's own.
//!
//! [`tape`] adds a layer to the computation graph of gradients; the layers themselves work on slices.

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

/// Whether these layers can compute a tensor: its elements are in this process's memory.
pub(crate) fn is_here<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.device().without_autodiff() == burn::tensor::Device::flex()
}
