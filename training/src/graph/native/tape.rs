//! Registers these layers with their derivatives as operations of Burn's processor backend.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, ExtensionType, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Tensor, TensorData};

use super::conv::{ConvSizes, Wanted};
use super::norm::{Measured, Planes};
use super::{Sliding, conv, pool};

/// A two-dimensional convolution.
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

/// Maxima over windows.
pub(crate) fn max_pool2d(x: Tensor<4>, sliding: Sliding) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::maxima(x.into_dispatch(), sliding))
}

/// A normalised batch with its statistics.
pub(crate) struct Normed<const D: usize> {
    pub(crate) output: Tensor<D>,
    pub(crate) mean: Tensor<1>,
    pub(crate) variance: Tensor<1>,
}

/// Batch normalisation in training.
pub(crate) fn batch_norm<const D: usize>(
    x: Tensor<D>,
    scale: Tensor<1>,
    shift: Tensor<1>,
    epsilon: f32,
) -> Normed<D> {
    let normed =
        Dispatch::normalize(x.into_dispatch(), scale.into_dispatch(), shift.into_dispatch(), epsilon);
    Normed {
        output: Tensor::from_dispatch(normed.output),
        mean: Tensor::from_dispatch(normed.mean),
        variance: Tensor::from_dispatch(normed.variance),
    }
}

#[derive(ExtensionType)]
pub(crate) struct Normal<B: Backend> {
    output: FloatTensor<B>,
    mean: FloatTensor<B>,
    variance: FloatTensor<B>,
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

    fn maxima(x: FloatTensor<Self>, sliding: Sliding) -> FloatTensor<Self>;

    fn normalize(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        epsilon: f32,
    ) -> Normal<Self>;
}

impl Layers for Flex {
    fn convolve(x: FlexTensor, weight: FlexTensor, layer: ConvSizes) -> FlexTensor {
        convolved(&dense(x), &dense(weight), None, layer)
    }

    fn convolve_and_add(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, layer: ConvSizes) -> FlexTensor {
        convolved(&dense(x), &dense(weight), Some(&dense(bias)), layer)
    }

    fn maxima(x: FlexTensor, sliding: Sliding) -> FlexTensor {
        let x = dense(x);
        let (output, _) = pool::forward(x.storage(), &sliding);
        tensor(output, &pooled(&x, &sliding))
    }

    fn normalize(x: FlexTensor, scale: FlexTensor, shift: FlexTensor, epsilon: f32) -> Normal<Self> {
        let (x, scale, shift) = (dense(x), dense(scale), dense(shift));
        let (batch, shape) = batch(&x);
        let measured = batch.measure(x.storage());
        let output = batch.forward(x.storage(), &measured, scale.storage(), shift.storage(), epsilon);
        let channels = [batch.channels];
        let (mean, variance) = (tensor(measured.mean, &channels), tensor(measured.variance, &channels));
        Normal { output: tensor(output, &shape), mean, variance }
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

    fn maxima(x: FloatTensor<Self>, sliding: Sliding) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let x = dense(x);
        let (output, places) = pool::forward(x.storage(), &sliding);
        let output = tensor(output, &pooled(&x, &sliding));
        match Maxima.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((places, x.shape().to_vec(), sliding), output),
            OpsKind::UnTracked(prep) => prep.finish(output),
        }
    }

    fn normalize(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        epsilon: f32,
    ) -> Normal<Self> {
        let ((x, x_node), (scale, scale_node), (shift, shift_node)) =
            (x.into_parts(), scale.into_parts(), shift.into_parts());
        let (x, scale, shift) = (dense(x), dense(scale), dense(shift));
        let (batch, shape) = batch(&x);
        let measured = batch.measure(x.storage());
        let output = batch.forward(x.storage(), &measured, scale.storage(), shift.storage(), epsilon);
        let channels = [batch.channels];
        let constant = |values: &[f32]| FloatTensor::<Self>::new(tensor(values.to_vec(), &channels));
        let (mean, variance) = (constant(&measured.mean), constant(&measured.variance));
        let output = tensor(output, &shape);
        let output =
            match Normalization.prepare::<C>([x_node, scale_node, shift_node]).compute_bound().stateful() {
                OpsKind::Tracked(prep) => prep.finish((x, scale, measured, epsilon), output),
                OpsKind::UnTracked(prep) => prep.finish(output),
            };
        Normal { output, mean, variance }
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
        let conv::ConvGradients { x: by_x, weight: by_weight } = found;
        let [by_x_node, by_weight_node] = [&ops.parents[0], &ops.parents[1]];
        if let (Some(node), Some(by_x)) = (by_x_node, by_x) {
            gradients.register::<Flex>(node.id, tensor(by_x, &x.shape()));
        }
        if let (Some(node), Some(by_weight)) = (by_weight_node, by_weight) {
            gradients.register::<Flex>(node.id, tensor(by_weight, &weight.shape()));
        }
        if let Some(Some(node)) = ops.parents.get(2) {
            let by_bias = layer.bias_gradient(gradient.storage());
            gradients.register::<Flex>(node.id, tensor(by_bias, &[layer.outputs]));
        }
    }
}

#[derive(Debug)]
struct Maxima;

impl Backward<Flex, 1> for Maxima {
    type State = (Vec<u32>, Vec<usize>, Sliding);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = dense(gradients.consume::<Flex>(&ops.node));
        let (places, shape, sliding) = ops.state;
        if let [Some(node)] = &ops.parents {
            let by_x = pool::backward(gradient.storage(), &places, &sliding);
            gradients.register::<Flex>(node.id, tensor(by_x, &shape));
        }
    }
}

#[derive(Debug)]
struct Normalization;

impl Backward<Flex, 3> for Normalization {
    type State = (FlexTensor, FlexTensor, Measured, f32);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = dense(gradients.consume::<Flex>(&ops.node));
        let (x, scale, measured, epsilon) = ops.state;
        let (batch, shape) = batch(&x);
        let found = batch.backward(x.storage(), gradient.storage(), &measured, scale.storage(), epsilon);
        let channels = [batch.channels];
        let found = [(found.x, &shape[..]), (found.scale, &channels), (found.shift, &channels)];
        for (node, (values, shape)) in ops.parents.iter().zip(found) {
            if let Some(node) = node {
                gradients.register::<Flex>(node.id, tensor(values, shape));
            }
        }
    }
}

fn convolved(x: &FlexTensor, weight: &FlexTensor, bias: Option<&FlexTensor>, layer: ConvSizes) -> FlexTensor {
    let output = layer.forward(x.storage(), weight.storage(), bias.map(FlexTensor::storage));
    let [height, width] = layer.sliding.output;
    tensor(output, &[x.shape()[0], layer.outputs, height, width])
}

fn pooled(x: &FlexTensor, sliding: &Sliding) -> [usize; 4] {
    let shape = x.shape();
    [shape[0], shape[1], sliding.output[0], sliding.output[1]]
}

fn batch(x: &FlexTensor) -> (Planes, Vec<usize>) {
    let shape = x.shape().to_vec();
    (Planes { channels: shape[1], plane: shape[2..].iter().product() }, shape)
}

/// The tensor with its elements alone in memory, in row-major order.
fn dense(tensor: FlexTensor) -> FlexTensor {
    tensor.to_contiguous()
}

fn tensor(values: Vec<f32>, shape: &[usize]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape.to_vec()))
}
