//! Encoder and decoder as ONNX graphs.
//!
//! An engine receives one tensor after another as bytes. The encoder reads the k queries as one tensor, whose first
//! dimension is k times that of a query, and writes the r coded queries in the same way. The decoder reads k + r
//! outputs and writes k predictions.

use parm_parity_models::onnx::{Attribute, Builder, Defect, Dense, Model, Tensor, Value};

/// Sizes of a code's networks.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) k: usize,
    pub(super) r: usize,
    /// Dimensions of one query.
    pub(super) dims: Vec<usize>,
    /// Values of one output.
    pub(super) values: usize,
    pub(super) seed: u64,
}

/// Dilations of the convolutions.
const DILATIONS: [usize; 6] = [1, 1, 2, 4, 8, 1];
/// Channels of a convolution per query.
const CHANNELS: usize = 20;

impl Sizes {
    fn rows(&self, count: usize) -> Vec<usize> {
        let mut dims = self.dims.clone();
        dims[0] *= count;
        dims
    }

    /// k d -> k d -> r d.
    pub(super) fn mlp_encoder(&self) -> Result<Model, Defect> {
        let d: usize = self.dims.iter().product();
        let mut net = Builder::new("encoder", self.seed);
        let mut value = net.input(Value::batch_of_f32("queries", &self.rows(self.k)));
        value = net.node("Flatten", "flat", &[&value]);
        value = net.dense("fc1", &value, Dense { inputs: self.k * d, outputs: self.k * d })?;
        value = net.node("Relu", "fc1.relu", &[&value]);
        value = net.dense("fc2", &value, Dense { inputs: self.k * d, outputs: self.r * d })?;
        reshape(&mut net, "parities", &value, &self.rows(self.r))?;
        net.output(Value::batch_of_f32("parities", &self.rows(self.r)));
        net.build()
    }

    /// Convolutions over images with the k queries as channels, each colour separately.
    pub(super) fn conv_encoder(&self) -> Result<Model, Defect> {
        let [colours, height, width] = self.dims[..] else {
            return self.mlp_encoder(); // refused beforehand
        };
        let mut net = Builder::new("encoder", self.seed);
        let mut value = net.input(Value::batch_of_f32("queries", &self.rows(self.k)));
        // [N, k c, h, w] to [N c, k, h, w].
        value = reshape(&mut net, "apart", &value, &[self.k, colours, height, width])?;
        value = transpose(&mut net, "colours", &value, [0, 2, 1, 3, 4]);
        let shape =
            Tensor::from_i64("planes.shape", &[4], &[-1, self.k as i64, height as i64, width as i64])?;
        let shape = net.constant(shape);
        value = net.node("Reshape", "planes", &[&value, &shape]);
        let mut inputs = self.k;
        for (at, dilation) in DILATIONS.into_iter().enumerate() {
            let layer = Filters { inputs, outputs: CHANNELS * self.k, kernel: 3, dilation };
            value = filters(&mut net, &format!("conv{}", at + 1), &value, layer)?;
            value = net.node("Relu", &format!("conv{}.relu", at + 1), &[&value]);
            inputs = CHANNELS * self.k;
        }
        value =
            filters(&mut net, "mix", &value, Filters { inputs, outputs: self.r, kernel: 1, dilation: 1 })?;
        value = reshape(&mut net, "together", &value, &[self.r, height, width])?;
        let shape = [-1, colours as i64, self.r as i64, height as i64, width as i64];
        let shape = net.constant(Tensor::from_i64("rows.shape", &[5], &shape)?);
        value = net.node("Reshape", "rows", &[&value, &shape]);
        value = transpose(&mut net, "ordered", &value, [0, 2, 1, 3, 4]);
        reshape(&mut net, "parities", &value, &self.rows(self.r))?;
        net.output(Value::batch_of_f32("parities", &self.rows(self.r)));
        net.build()
    }

    /// (k + r) C -> (k + r) C -> k C -> k C.
    pub(super) fn decoder(&self) -> Result<Model, Defect> {
        let (all, own) = ((self.k + self.r) * self.values, self.k * self.values);
        let mut net = Builder::new("decoder", self.seed);
        let mut value = net.input(Value::batch_of_f32("outputs", &[self.k + self.r, self.values]));
        value = net.node("Flatten", "flat", &[&value]);
        value = net.dense("fc1", &value, Dense { inputs: all, outputs: all })?;
        value = net.node("Relu", "fc1.relu", &[&value]);
        value = net.dense("fc2", &value, Dense { inputs: all, outputs: own })?;
        value = net.node("Relu", "fc2.relu", &[&value]);
        value = net.dense("fc3", &value, Dense { inputs: own, outputs: own })?;
        reshape(&mut net, "predictions", &value, &[self.k, self.values])?;
        net.output(Value::batch_of_f32("predictions", &[self.k, self.values]));
        net.build()
    }
}

/// Rows of these dimensions, in any number.
fn reshape(net: &mut Builder, name: &str, value: &str, row: &[usize]) -> Result<String, Defect> {
    let target: Vec<i64> = std::iter::once(-1).chain(row.iter().map(|&size| size as i64)).collect();
    let shape = net.constant(Tensor::from_i64(&format!("{name}.shape"), &[target.len()], &target)?);
    Ok(net.node("Reshape", name, &[value, &shape]))
}

fn transpose(net: &mut Builder, name: &str, value: &str, order: [i64; 5]) -> String {
    net.node_with("Transpose", name, &[value], [("perm", Attribute::from(order.to_vec()))])
}

struct Filters {
    inputs: usize,
    outputs: usize,
    kernel: usize,
    dilation: usize,
}

/// A convolution that keeps the image's size.
fn filters(net: &mut Builder, name: &str, value: &str, layer: Filters) -> Result<String, Defect> {
    let Filters { inputs, outputs, kernel, dilation } = layer;
    let bound = ((inputs * kernel * kernel) as f32).sqrt().recip();
    let dims = [outputs, inputs, kernel, kernel];
    let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
    let draw = |name: &str, count: usize| net.random(name).uniforms(bound, count);
    let (weights, biases) = (draw(&weight, dims.iter().product()), draw(&bias, outputs));
    let weight = net.constant(Tensor::from_f32(&weight, &dims, &weights)?);
    let bias = net.constant(Tensor::from_f32(&bias, &[outputs], &biases)?);
    let border = (dilation * (kernel / 2)) as i64;
    let attributes = [
        ("kernel_shape", Attribute::from(vec![kernel as i64; 2])),
        ("dilations", vec![dilation as i64; 2].into()),
        ("pads", vec![border; 4].into()),
    ];
    Ok(net.node_with("Conv", name, &[value, &weight, &bias], attributes))
}
