//! Normalisations: over the batch, over a layer, over an instance, over groups of channels.

use burn::tensor::{Tensor, module};

use crate::array::count;
use crate::graph::kernel::{Inputs, Kernel, Mode, Pass, Statistic, axis, one};
use crate::graph::{Problem, Real, Value, real::map, spec::Spec};

/// Batch normalisation. The running statistics are buffers, not parameters: in training they follow the batches by
/// the node's momentum, with the population variance, as ONNX defines it.
pub(super) fn batch(spec: &Spec) -> Result<Kernel, Problem> {
    let epsilon = f64::from(spec.float("epsilon", 1e-5)?);
    let momentum = spec.float("momentum", 0.9)?;
    spec.only("training_mode", 0, "0 (a model exported for inference)")?;
    spec.only("spatial", 1, "1")?;
    spec.outputs(1)?;
    let buffer = |at| spec.node.input(at).map(String::from).ok_or(Problem::MissingInput { at });
    let batch = BatchNorm { epsilon, momentum, mean: buffer(3)?, variance: buffer(4)? };
    Ok(Box::new(move |inputs, pass| batch.run(inputs, pass)))
}

struct BatchNorm {
    epsilon: f64,
    momentum: f32,
    mean: String,
    variance: String,
}

impl BatchNorm {
    fn run(&self, mut inputs: Inputs, pass: &mut Pass) -> Result<Vec<Value>, Problem> {
        let x = inputs.real(0)?;
        let shape = x.shape();
        let mut vector = |at| {
            let tensor = inputs.real(at)?.rank1()?;
            if shape.len() < 2 || tensor.dims()[0] != shape[1] {
                return Err(Problem::Broadcast { left: shape.clone(), right: tensor.dims().to_vec() });
            }
            Ok::<Tensor<1>, Problem>(tensor)
        };
        let (scale, bias, mean, variance) = (vector(1)?, vector(2)?, vector(3)?, vector(4)?);
        if pass.mode == Mode::Evaluate {
            return one(map!(x, t => module::batch_norm(t, scale, bias, mean, variance, self.epsilon)));
        }
        let (measured_mean, measured_variance);
        let output = map!(x, t => {
            let result = module::batch_norm_train(t, scale, bias, self.epsilon);
            (measured_mean, measured_variance) = (result.mean, result.variance);
            result.output
        });
        for (name, value) in [(&self.mean, measured_mean), (&self.variance, measured_variance)] {
            let (name, value) = (name.clone(), Real::R1(value));
            pass.statistics.push(Statistic { name, value, momentum: self.momentum });
        }
        one(output)
    }
}

/// Normalises over the dimensions from `axis` on.
pub(super) fn layer(spec: &Spec) -> Result<Kernel, Problem> {
    let first = spec.int("axis", -1)?;
    let epsilon = spec.float("epsilon", 1e-5)?;
    spec.only("stash_type", 1, "1 (32-bit floats)")?;
    spec.outputs(1)?;
    Ok(Box::new(move |mut inputs, _| {
        let (x, scale, bias) = (inputs.real(0)?, inputs.real(1)?, inputs.optional_real(2)?);
        let rank = x.rank();
        let axes: Vec<usize> = (axis(first, rank)?..rank).collect();
        let scaled = standardize(x, &axes, epsilon)?.mul(scale)?;
        one(bias.map_or(Ok(scaled.clone()), |bias| scaled.add(bias))?)
    }))
}

/// Normalises every channel of every instance over space.
pub(super) fn instance(spec: &Spec) -> Result<Kernel, Problem> {
    let epsilon = spec.float("epsilon", 1e-5)?;
    Ok(Box::new(move |mut inputs, _| {
        let (x, scale, bias) = (inputs.real(0)?, inputs.real(1)?, inputs.real(2)?);
        let shape = with_channels(&x)?;
        let axes: Vec<usize> = (2..shape.len()).collect();
        one(per_channel(standardize(x, &axes, epsilon)?, scale, bias, &shape)?)
    }))
}

/// Normalises groups of channels of every instance over the group and space.
pub(super) fn group(spec: &Spec) -> Result<Kernel, Problem> {
    let epsilon = spec.float("epsilon", 1e-5)?;
    let groups = spec.int("num_groups", 0)?;
    spec.only("stash_type", 1, "1 (32-bit floats)")?;
    if spec.opset < 21 {
        // Scale and bias were one per group until then.
        return Err(Problem::Operator { op: spec.node.op.clone(), opset: spec.opset });
    }
    Ok(Box::new(move |mut inputs, _| {
        let (x, scale, bias) = (inputs.real(0)?, inputs.real(1)?, inputs.real(2)?);
        let shape = with_channels(&x)?;
        let groups = usize::try_from(groups).ok().filter(|&groups| groups > 0 && shape[1] % groups == 0);
        let groups = groups.ok_or(Problem::Reshape { from: shape.clone(), to: shape.clone() })?;
        let grouped = x.reshape(&[shape[0], groups, count(&shape[1..]) / groups])?;
        let normal = standardize(grouped, &[2], epsilon)?.reshape(&shape)?;
        one(per_channel(normal, scale, bias, &shape)?)
    }))
}

/// The shape of a tensor whose second dimension counts channels.
fn with_channels(x: &Real) -> Result<Vec<usize>, Problem> {
    let shape = x.shape();
    if shape.len() < 2 { Err(Problem::Rank { expected: 2, shape }) } else { Ok(shape) }
}

/// Subtracts the mean and divides by the standard deviation over `axes`.
fn standardize(x: Real, axes: &[usize], epsilon: f32) -> Result<Real, Problem> {
    let mean = x.clone().mean(axes);
    let centred = x.sub(mean)?;
    let variance = centred.clone().mul(centred.clone())?.mean(axes);
    centred.div(map!(variance, t => t.add_scalar(epsilon).sqrt()))
}

fn per_channel(x: Real, scale: Real, bias: Real, shape: &[usize]) -> Result<Real, Problem> {
    let mut channel = vec![1; shape.len()];
    channel[1] = shape[1];
    x.mul(scale.reshape(&channel)?)?.add(bias.reshape(&channel)?)
}
