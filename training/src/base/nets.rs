//! The architectures of base models, layer by layer.

use parm_parity_models::onnx::{
    Attribute, BatchNorm, Builder, Conv, DataType, Defect, Dense, Model, Pool, Tensor, Value,
};

use super::Shape;
use crate::Error;

type Layer = Result<(), Defect>;

/// A graph whose next layer reads the output of the one before.
struct Stack {
    net: Builder,
    value: String,
}

impl Stack {
    fn new(name: &str, shape: &Shape, datatype: DataType) -> Self {
        let mut net = Builder::new(name, shape.seed);
        let value = net.input(Value { datatype, ..Value::batch_of_f32("input", &shape.dims) });
        Self { net, value }
    }

    fn node(&mut self, op: &str, name: &str) {
        self.value = self.net.node(op, name, &[&self.value]);
    }

    fn relu(&mut self, layer: &str) {
        self.node("Relu", &format!("{layer}.relu"));
    }

    /// A convolution without bias, called `conv`, and the batch normalisation behind it, called `norm`.
    fn normed(&mut self, [conv, norm]: [&str; 2], layer: Conv) -> Layer {
        self.value = self.net.conv(conv, &self.value, Conv { bias: false, ..layer })?;
        self.value = self.net.batch_norm(norm, &self.value, BatchNorm { channels: layer.outputs })?;
        Ok(())
    }

    /// A convolution, batch normalisation and ReLU.
    fn convolved(&mut self, name: &str, layer: Conv) -> Layer {
        self.normed([name, &format!("{name}.norm")], layer)?;
        self.relu(name);
        Ok(())
    }

    /// Halves the picture.
    fn pooled(&mut self, layer: &str) {
        let pool = Pool { kernel: 2, stride: 2, padding: 0 };
        self.value = self.net.max_pool(&format!("{layer}.pool"), &self.value, pool);
    }

    /// A fully connected layer and ReLU.
    fn dense(&mut self, name: &str, inputs: usize, outputs: usize) -> Layer {
        self.value = self.net.dense(name, &self.value, Dense { inputs, outputs })?;
        self.relu(name);
        Ok(())
    }

    fn averaged(&mut self) {
        self.node("GlobalAveragePool", "average");
        self.node("Flatten", "flat");
    }

    fn output(mut self, inputs: usize, shape: &Shape) -> Result<Model, Error> {
        self.net.dense("output", &self.value, Dense { inputs, outputs: shape.outputs })?;
        self.net.output(Value::batch_of_f32("output", &[shape.outputs]));
        Ok(self.net.build()?)
    }
}

/// The paper's multi-layer perceptron: 200 and 100 hidden units.
pub(super) fn mlp(shape: &Shape) -> Result<Model, Error> {
    let inputs: usize = shape.dims.iter().product();
    if inputs == 0 {
        return Err(shape.refused("mlp", "rows with values"));
    }
    let mut net = Stack::new("mlp", shape, DataType::Float);
    if shape.dims.len() > 1 {
        net.node("Flatten", "flat");
    }
    net.dense("fc1", inputs, 200)?;
    net.dense("fc2", 200, 100)?;
    net.output(100, shape)
}

/// LeNet-5 for images of 28 x 28 with today's usual ReLU and maximum pooling. 61,706 weights for ten classes of grey
/// images.
pub(super) fn lenet(shape: &Shape) -> Result<Model, Error> {
    let [channels, 28, 28] = shape.dims[..] else {
        return Err(shape.refused("lenet", "images of [channels, 28, 28]"));
    };
    let mut net = Stack::new("lenet", shape, DataType::Float);
    for (name, inputs, outputs, padding) in [("conv1", channels, 6, 2), ("conv2", 6, 16, 0)] {
        net.value = net.net.conv(name, &net.value, Conv { padding, ..Conv::same(inputs, outputs, 5) })?;
        net.relu(name);
        net.pooled(name);
    }
    net.node("Flatten", "flat");
    net.dense("fc1", 400, 120)?;
    net.dense("fc2", 120, 84)?;
    net.output(84, shape)
}

/// A regressor of boxes in images: four convolutions that halve the image, and two layers on all positions. 126,548
/// weights for one box in a colour image of 64 x 64.
pub(super) fn boxes(shape: &Shape) -> Result<Model, Error> {
    let [channels, height, width] =
        shape.image("boxes", 16, "images of [channels, 16 or more, 16 or more]")?;
    let mut net = Stack::new("boxes", shape, DataType::Float);
    for (layer, inputs, outputs) in
        [("conv1", channels, 16), ("conv2", 16, 32), ("conv3", 32, 64), ("conv4", 64, 64)]
    {
        net.convolved(layer, Conv { stride: 2, ..Conv::same(inputs, outputs, 3) })?;
    }
    net.node("Flatten", "flat");
    let left = |side: usize| (0..4).fold(side, |side, _| side.div_ceil(2));
    net.dense("fc1", 64 * left(height) * left(width), 64)?;
    net.output(64, shape)
}

/// A network for spoken words as pictures of their spectra (bands or coefficients by time, either way round): three
/// convolutions, an average over positions, one layer. 56,554 weights for ten words.
pub(super) fn speech(shape: &Shape) -> Result<Model, Error> {
    let [channels, ..] = shape.image("speech", 4, "pictures of [1, 4 or more, 4 or more]")?;
    let mut net = Stack::new("speech", shape, DataType::Float);
    for (layer, inputs, outputs) in [("conv1", channels, 32), ("conv2", 32, 64), ("conv3", 64, 64)] {
        net.convolved(layer, Conv::same(inputs, outputs, 3))?;
        if layer != "conv3" {
            net.pooled(layer);
        }
    }
    net.averaged();
    net.output(64, shape)
}

/// Channels of VGG's convolutions, and whether a pool follows.
const VGG: [(usize, bool); 8] = [
    (64, true),
    (128, true),
    (256, false),
    (256, true),
    (512, false),
    (512, true),
    (512, false),
    (512, true),
];

/// VGG-11 with batch normalisation, for images and pictures of spectra. It halves the picture while its size allows, and
/// averages over the rest, so that one layer reads 512 features. 9,228,362 weights for ten classes of three channels.
pub(super) fn vgg11(shape: &Shape) -> Result<Model, Error> {
    let [channels, height, width] = shape.image("vgg11", 8, "images of [channels, 8 or more, 8 or more]")?;
    let mut net = Stack::new("vgg11", shape, DataType::Float);
    let (mut inputs, mut side) = (channels, height.min(width));
    for (at, (outputs, halve)) in VGG.into_iter().enumerate() {
        let layer = format!("conv{}", at + 1);
        net.convolved(&layer, Conv::same(inputs, outputs, 3))?;
        if halve && side > 1 {
            net.pooled(&layer);
            side /= 2;
        }
        inputs = outputs;
    }
    net.averaged();
    net.output(inputs, shape)
}

/// A residual network for laptops: one block for each of three widths. 77,754 weights for ten classes of grey images.
pub(super) fn resnet_small(shape: &Shape) -> Result<Model, Error> {
    residual("resnet-small", shape, &[16, 32, 64], 1)
}

/// ResNet-18 with the stem for small images.
pub(super) fn resnet18(shape: &Shape) -> Result<Model, Error> {
    residual("resnet18", shape, &[64, 128, 256, 512], 2)
}

/// A residual network for images of any size from 8 x 8, since it averages over the remaining positions. A block has two
/// convolutions and a shortcut, which is a convolution if the size changes.
fn residual(name: &'static str, shape: &Shape, widths: &[usize], blocks: usize) -> Result<Model, Error> {
    let [channels, ..] = shape.image(name, 8, "images of [channels, 8 or more, 8 or more]")?;
    let mut net = Stack::new(name, shape, DataType::Float);
    let mut inputs = widths[0];
    net.normed(["stem.conv", "stem.norm"], Conv::same(channels, inputs, 3))?;
    net.relu("stem");
    for (stage, &outputs) in widths.iter().enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let layer = |part: &str| format!("stage{stage}.{block}.{part}");
            let before = net.value.clone();
            net.normed(
                [&layer("a.conv"), &layer("a.norm")],
                Conv { stride, ..Conv::same(inputs, outputs, 3) },
            )?;
            net.relu(&layer("a"));
            net.normed([&layer("b.conv"), &layer("b.norm")], Conv::same(outputs, outputs, 3))?;
            let own = std::mem::replace(&mut net.value, before);
            if (inputs, stride) != (outputs, 1) {
                let around = Conv { stride, ..Conv::same(inputs, outputs, 1) };
                net.normed([&layer("around.conv"), &layer("around.norm")], around)?;
            }
            net.value = net.net.node("Add", &layer("sum"), &[&own, &net.value]);
            net.value = net.net.node("Relu", &layer("relu"), &[&net.value]);
            inputs = outputs;
        }
    }
    net.averaged();
    net.output(inputs, shape)
}

/// Sums of up to four tokens, and 0.
const TOKENS: usize = 4 * 256 + 1;

/// A network for files as rows of bytes: the first and the last bytes of each file. Tokens are 0 to 255, and 256 where
/// the file has no byte. The layers are an embedding, two convolutions with stride four, a maximum over positions and two
/// layers; 89,566 weights for 214 kinds of files. The embedding also covers sums of four tokens, since a sum code sends
/// such rows to its parity model.
pub(super) fn bytes(shape: &Shape) -> Result<Model, Error> {
    if !matches!(shape.dims[..], [length] if length >= 64) {
        return Err(shape.refused("bytes", "rows of 64 bytes or more"));
    }
    let mut net = Stack::new("bytes", shape, DataType::Int32);
    let values = net.net.random("embedding.weight").normals(TOKENS * 8);
    let table = net.net.constant(Tensor::from_f32("embedding.weight", &[TOKENS, 8], &values)?);
    let embedded = net.net.node("Gather", "embedding", &[&table, &net.value]);
    let order: Attribute = vec![0i64, 2, 1].into();
    net.value = net.net.node_with("Transpose", "channels", &[&embedded], [("perm", order)]);
    for (name, inputs, outputs, kernel) in [("conv1", 8, 64, 8), ("conv2", 64, 128, 4)] {
        let weight = format!("{name}.weight");
        let bound = ((inputs * kernel) as f32).sqrt().recip();
        let values = net.net.random(&weight).uniforms(bound, outputs * inputs * kernel);
        let weight = net.net.constant(Tensor::from_f32(&weight, &[outputs, inputs, kernel], &values)?);
        let attributes = [("kernel_shape", vec![kernel as i64].into()), ("strides", vec![4i64].into())];
        net.value = net.net.node_with("Conv", name, &[&net.value, &weight], attributes);
        let norm = BatchNorm { channels: outputs };
        net.value = net.net.batch_norm(&format!("{name}.norm"), &net.value, norm)?;
        net.relu(name);
    }
    net.node("GlobalMaxPool", "largest");
    net.node("Flatten", "flat");
    net.dense("fc1", 128, 128)?;
    net.output(128, shape)
}
