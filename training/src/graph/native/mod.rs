//! Two-dimensional convolutions on the processor, in loops of this crate.
//!
//! Training a residual network spends most of its time in convolutions. Burn's processor backend differentiates them as
//! further convolutions with windows as large as the image, which takes two to three times as long. Here a convolution and both
//! derivatives are matrix products over gathered windows ([`columns`]), image by image, so that the windows stay in the
//! cache. All other layers are Burn's, and so are convolutions on other devices.
//!
//! This file registers the convolution with its derivatives as an operation of Burn's processor backend, which adds it to the
//! computation graph of gradients. The convolution itself works on slices.

mod columns;
mod conv;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Tensor, TensorData};

pub(crate) use columns::Sliding;
use conv::ConvSizes;

/// Whether a tensor's elements are in this process's memory.
pub(crate) fn is_here<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.device().without_autodiff() == burn::tensor::Device::flex()
}

/// A two-dimensional convolution of a tensor in this process's memory.
pub(crate) fn conv2d(x: Tensor<4>, weight: Tensor<4>, groups: usize, sliding: Sliding) -> Tensor<4> {
    let layer = ConvSizes { inputs: x.dims()[1], outputs: weight.dims()[0], groups, sliding };
    Tensor::from_dispatch(Dispatch::convolve(x.into_dispatch(), weight.into_dispatch(), layer))
}

#[backend_extension(Autodiff, Flex)]
pub(crate) trait Layers: Backend {
    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, layer: ConvSizes) -> FloatTensor<Self>;
}

impl Layers for Flex {
    fn convolve(x: FlexTensor, weight: FlexTensor, layer: ConvSizes) -> FlexTensor {
        convolved(&dense(x), &dense(weight), layer)
    }
}

impl<C: CheckpointStrategy> Layers for Autodiff<Flex, C> {
    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, layer: ConvSizes) -> FloatTensor<Self> {
        let ((x, x_node), (weight, weight_node)) = (x.into_parts(), weight.into_parts());
        let (x, weight) = (dense(x), dense(weight));
        let output = convolved(&x, &weight, layer);
        match Convolution.prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((x, weight, layer), output),
            OpsKind::UnTracked(prep) => prep.finish(output),
        }
    }
}

/// The derivative of a convolution by its images and its filters.
#[derive(Debug)]
struct Convolution;

impl Backward<Flex, 2> for Convolution {
    type State = (FlexTensor, FlexTensor, ConvSizes);

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = dense(gradients.consume::<Flex>(&ops.node));
        let (x, weight, layer) = ops.state;
        let [x_node, weight_node] = ops.parents;
        // The first layer's images need no gradient, nor do the filters of a frozen network.
        if let Some(node) = x_node {
            let by_x = layer.by_input(weight.storage(), gradient.storage());
            gradients.register::<Flex>(node.id, tensor(by_x, &x.shape()));
        }
        if let Some(node) = weight_node {
            let by_weight = layer.by_weight(x.storage(), gradient.storage());
            gradients.register::<Flex>(node.id, tensor(by_weight, &weight.shape()));
        }
    }
}

fn convolved(x: &FlexTensor, weight: &FlexTensor, layer: ConvSizes) -> FlexTensor {
    let [height, width] = layer.sliding.output;
    let output = layer.forward(x.storage(), weight.storage());
    tensor(output, &[x.shape()[0], layer.outputs, height, width])
}

/// The tensor with its elements alone in memory, in row-major order.
fn dense(tensor: FlexTensor) -> FlexTensor {
    tensor.to_contiguous()
}

fn tensor(values: Vec<f32>, shape: &[usize]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape.to_vec()))
}
