//! Registers the convolution with its derivatives as an operation of Burn's processor backend.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Tensor, TensorData};

use super::conv::{ConvGradients, ConvSizes, Wanted};
use super::sliding::Sliding;

/// A two-dimensional convolution of a tensor in this process's memory.
pub(crate) fn conv2d(
    x: Tensor<4>,
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    groups: usize,
    sliding: Sliding,
) -> Tensor<4> {
    let layer = ConvSizes { inputs: x.dims()[1], outputs: weight.dims()[0], groups, sliding };
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(match bias {
        Some(bias) => Dispatch::convolve_and_add(x, weight, bias.into_dispatch(), layer),
        None => Dispatch::convolve(x, weight, layer),
    })
}

#[backend_extension(Autodiff, Flex)]
pub(crate) trait Layers: Backend {
    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, layer: ConvSizes) -> FloatTensor<Self>;

    fn convolve_and_add(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        layer: ConvSizes,
    ) -> FloatTensor<Self>;
}

impl Layers for Flex {
    fn convolve(x: FlexTensor, weight: FlexTensor, layer: ConvSizes) -> FlexTensor {
        convolved(&dense(x), &dense(weight), None, layer)
    }

    fn convolve_and_add(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, layer: ConvSizes) -> FlexTensor {
        convolved(&dense(x), &dense(weight), Some(&dense(bias)), layer)
    }
}

impl<C: CheckpointStrategy> Layers for Autodiff<Flex, C> {
    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, layer: ConvSizes) -> FloatTensor<Self> {
        let ((x, x_node), (weight, weight_node)) = (x.into_parts(), weight.into_parts());
        let (x, weight) = (dense(x), dense(weight));
        let output = convolved(&x, &weight, None, layer);
        match Convolution.prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((x, weight, layer), output),
            OpsKind::UnTracked(prep) => prep.finish(output),
        }
    }

    fn convolve_and_add(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        layer: ConvSizes,
    ) -> FloatTensor<Self> {
        let ((x, x_node), (weight, weight_node)) = (x.into_parts(), weight.into_parts());
        let (bias, bias_node) = bias.into_parts();
        let (x, weight) = (dense(x), dense(weight));
        let output = convolved(&x, &weight, Some(&dense(bias)), layer);
        match Convolution.prepare::<C>([x_node, weight_node, bias_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((x, weight, layer), output),
            OpsKind::UnTracked(prep) => prep.finish(output),
        }
    }
}

/// The derivative of a convolution, whose third operand may be a bias.
#[derive(Debug)]
struct Convolution;

impl<const N: usize> Backward<Flex, N> for Convolution {
    type State = (FlexTensor, FlexTensor, ConvSizes);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = dense(gradients.consume::<Flex>(&ops.node));
        let (x, weight, layer) = ops.state;
        let wanted = match &ops.parents[..] {
            [Some(_), Some(_), ..] => Wanted::Both,
            [Some(_), ..] => Wanted::Input,
            _ => Wanted::Weight,
        };
        let found = layer.backward(x.storage(), weight.storage(), gradient.storage(), wanted);
        let ConvGradients { x: by_x, weight: by_weight } = found;
        for (node, by, shape) in
            [(&ops.parents[0], by_x, x.shape()), (&ops.parents[1], by_weight, weight.shape())]
        {
            if let (Some(node), Some(by)) = (node, by) {
                gradients.register::<Flex>(node.id, tensor(by, &shape));
            }
        }
        if let Some(Some(node)) = ops.parents.get(2) {
            let by_bias = layer.bias_gradient(gradient.storage());
            gradients.register::<Flex>(node.id, tensor(by_bias, &[layer.outputs]));
        }
    }
}

fn convolved(x: &FlexTensor, weight: &FlexTensor, bias: Option<&FlexTensor>, layer: ConvSizes) -> FlexTensor {
    let output = layer.forward(x.storage(), weight.storage(), bias.map(FlexTensor::storage));
    let [height, width] = layer.sliding.output;
    tensor(output, &[x.shape()[0], layer.outputs, height, width])
}

/// The tensor with its elements alone in memory, in row-major order.
fn dense(tensor: FlexTensor) -> FlexTensor {
    tensor.to_contiguous()
}

fn tensor(values: Vec<f32>, shape: &[usize]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape.to_vec()))
}
