//! Hostile models: nodes with huge outputs or impossible settings.

use parm_parity_models::onnx::{Attribute, Builder, DataType, Dim, Model, Tensor, Value};
use parm_training::{Array, Device, Error, Host, Network};

use crate::{MOST, complaint};

const BIG: i64 = 1 << 40;

/// A graph of one node over the input `x`, by default `[batch, 4]`, and constants.
struct One {
    op: &'static str,
    inputs: Vec<&'static str>,
    constants: Vec<Tensor>,
    attributes: Vec<(&'static str, Attribute)>,
    shape: Vec<usize>,
    words: &'static str,
}

fn ints(name: &str, values: &[i64]) -> Tensor {
    Tensor::from_i64(name, &[values.len()], values).unwrap()
}

fn floats(name: &str, dims: &[usize]) -> Tensor {
    Tensor::from_f32(name, dims, &vec![1.0; dims.iter().product()]).unwrap()
}

/// A node with these inputs that must be rejected with these words.
fn one(op: &'static str, inputs: &[&'static str], constants: Vec<Tensor>, words: &'static str) -> One {
    One { op, inputs: inputs.to_vec(), constants, attributes: Vec::new(), shape: vec![2, 4], words }
}

impl One {
    fn with(mut self, name: &'static str, value: impl Into<Attribute>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    fn over(self, shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), ..self }
    }

    fn run(&self) -> Result<Vec<Host>, Error> {
        let mut graph = Builder::new("hostile", 1);
        let dims = self.shape.iter().map(|&size| Dim::Fixed(size)).collect();
        graph.input(Value { name: "x".into(), datatype: DataType::Float, shape: Some(dims) });
        self.constants.iter().for_each(|tensor| _ = graph.constant(tensor.clone()));
        // The builder takes a fixed number of settings.
        let settings = self.attributes.clone();
        match &settings[..] {
            [] => graph.node(self.op, "y", &self.inputs),
            [a] => graph.node_with(self.op, "y", &self.inputs, [a.clone()]),
            [a, b] => graph.node_with(self.op, "y", &self.inputs, [a.clone(), b.clone()]),
            _ => unreachable!("no case has more"),
        };
        graph.output(Value { name: "y".into(), datatype: DataType::Float, shape: None });
        let network = Network::new(graph.build()?, Device::Cpu)?;
        network.predict(&[Host::Floats(Array::full(self.shape.clone(), 1.0))])
    }
}

fn check(cases: Vec<One>) {
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let name = format!("case {at}, {} ({})", case.op, case.words);
        wrong.extend(complaint(&name, case.words, MOST, || case.run()));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn node_is_rejected_when_its_output_would_be_huge() {
    let shape = |values: &[i64]| vec![ints("s", values)];
    let large = "elements";
    check(vec![
        one("ConstantOfShape", &["s"], shape(&[BIG, BIG]), large),
        one("Expand", &["x", "s"], shape(&[BIG, 2, 4]), large),
        one("Expand", &["x", "s"], shape(&[i64::MAX, i64::MAX, 2, 4]), large),
        one("Reshape", &["x", "s"], shape(&[BIG, BIG]), "cannot become"),
        one("Reshape", &["x", "s"], shape(&[BIG, BIG, -1]), "does not fit"),
        one("Reshape", &["x", "s"], shape(&[i64::MIN, -1]), "does not fit"),
        one("Tile", &["x", "s"], shape(&[1, i64::MAX]), large),
        one("Tile", &["s", "t"], vec![ints("s", &[1]), ints("t", &[BIG])], large),
        one("Range", &["a", "b", "c"], vec![ints("a", &[0]), ints("b", &[i64::MAX]), ints("c", &[1])], large),
        one(
            "Range",
            &["b", "a", "c"],
            vec![ints("a", &[i64::MIN]), ints("b", &[i64::MAX]), ints("c", &[-1])],
            large,
        ),
        one("Pad", &["x", "s"], shape(&[0, BIG, 0, BIG]), large),
        one("Pad", &["x", "s"], shape(&[0, i64::MAX, 0, i64::MAX]), large).with("mode", "wrap"),
        one("Resize", &["x", "", "", "s"], shape(&[2, BIG]), large),
        one("Resize", &["x", "", "s"], vec![big_float("s2", 1.0), both("s", 1.0, 1e30)], large),
        one("MatMul", &["a", "b"], vec![floats("a", &[1 << 17, 1]), floats("b", &[1, 1 << 17])], large),
        one("Add", &["a", "b"], vec![floats("a", &[1 << 17, 1]), floats("b", &[1, 1 << 17])], large),
        one("Equal", &["a", "b"], vec![floats("a", &[1 << 17, 1]), floats("b", &[1, 1 << 17])], large),
        one("Add", &["a", "b"], vec![column("a", 1 << 17), ints("b", &vec![1; 1 << 17])], large),
        one("Conv", &["x", "w"], vec![floats("w", &[1, 1, 1, 1])], large)
            .over(&[1, 1, 4, 4])
            .with("pads", vec![i64::MAX; 4]),
        one("MaxPool", &["x"], vec![], large)
            .over(&[1, 1, 4, 4])
            .with("kernel_shape", vec![2i64, 2])
            .with("pads", vec![1i64 << 20; 4]),
        one("AveragePool", &["x"], vec![], large)
            .over(&[1, 1, 4])
            .with("kernel_shape", vec![2i64])
            .with("pads", vec![i64::MAX; 2]),
    ]);
}

/// A vector of one float.
fn big_float(name: &str, value: f32) -> Tensor {
    Tensor::from_f32(name, &[1], &[value]).unwrap()
}

/// A vector of two floats.
fn both(name: &str, first: f32, second: f32) -> Tensor {
    Tensor::from_f32(name, &[2], &[first, second]).unwrap()
}

/// A column of ones.
fn column(name: &str, rows: usize) -> Tensor {
    Tensor::from_i64(name, &[rows, 1], &vec![1; rows]).unwrap()
}

#[test]
fn node_is_rejected_when_its_settings_cannot_be() {
    let image =
        || one("Conv", &["x", "w"], vec![floats("w", &[1, 1, 3, 3])], "does not fit").over(&[1, 1, 4, 4]);
    let empty = || ints("e", &[]);
    check(vec![
        image().with("dilations", vec![i64::MAX, i64::MAX]),
        image().with("dilations", vec![1i64 << 62, 1]),
        image().with("pads", vec![1i64]),
        one("Conv", &["x", "w"], vec![floats("w", &[1, 1, 3, 3])], "do not fit")
            .over(&[1, 1, 4, 4])
            .with("group", i64::MAX),
        one("Conv", &["x", "w"], vec![floats("w", &[1, 1, 3, 3])], "positive")
            .over(&[1, 1, 4, 4])
            .with("strides", vec![0i64, 1]),
        one("Conv", &["x", "w"], vec![floats("w", &[1, 1, 0, 3])], "kernel").over(&[1, 1, 4, 4]),
        one("MaxPool", &["x"], vec![], "kernel").over(&[1, 1, 4, 4]).with("kernel_shape", vec![0i64, 0]),
        one("MaxPool", &["x"], vec![], "does not fit").over(&[1, 1, 4, 4]).with("kernel_shape", vec![BIG, 1]),
        one("AveragePool", &["x"], vec![], "kernel").over(&[1, 1, 4]).with("kernel_shape", vec![0i64]),
        one("MaxPool", &["x"], vec![], "dimensions").with("kernel_shape", vec![2i64, 2]),
        one("Range", &[], vec![], "is missing"),
        one("Range", &["e", "e", "e"], vec![empty()], "is missing"),
        one("Split", &["x", "s"], vec![ints("s", &[i64::MAX, i64::MAX, 6])], "does not fit")
            .with("axis", 1i64),
        one("Pad", &["x", "s"], vec![ints("s", &[0, i64::MIN, 0, 0])], "pads"),
        one("Pad", &["x", "s"], vec![ints("s", &[0, i64::MIN, 0, 0])], "pads").with("mode", "edge"),
        one("Pad", &["x", "s"], vec![ints("s", &[0, 9, 0, 0])], "index").with("mode", "reflect"),
        one("Gather", &["x", "s"], vec![ints("s", &[i64::MIN])], "index"),
        one("Resize", &["x", "", "s"], vec![both("s", 1.0, f32::NAN)], "sizes"),
        one("Resize", &["x", "", "", "s"], vec![ints("s", &[0, 0])], "sizes"),
        one("GroupNormalization", &["x", "w", "w"], vec![floats("w", &[4])], "operator")
            .with("num_groups", 0i64),
        one("InstanceNormalization", &["x", "w", "w"], vec![floats("w", &[1])], "dimensions").over(&[2]),
        one("InstanceNormalization", &["x", "w", "w"], vec![floats("w", &[9])], "cannot become"),
        one("LSTM", &["x"], vec![], "cannot be trained through"),
        one("Softmax", &["x"], vec![], "axis").with("axis", i64::MIN),
        one("Transpose", &["x"], vec![], "does not fit").with("perm", vec![0i64, 0]),
        one("Concat", &["s", "s"], vec![Tensor::from_i64("s", &[], &[1]).unwrap()], "axis")
            .with("axis", 0i64),
        one("Unsqueeze", &["x", "s"], vec![ints("s", &[0, 1, 2, 3, 4, 5])], "more than 6 dimensions"),
        one("ArgMax", &["x"], vec![], "element").over(&[2, 0]).with("axis", 1i64),
        one("ReduceMax", &["x"], vec![], "element").over(&[2, 0]),
        one("MaxPool", &["x"], vec![], "does not fit")
            .over(&[1, 1, 0, 0])
            .with("kernel_shape", vec![1i64, 1]),
        one("GlobalMaxPool", &["x"], vec![], "element").over(&[1, 1, 0, 0]),
        one("TopK", &["x"], vec![], "cannot be trained through"),
        one("Relu", &["nobody"], vec![], "before any node makes it"),
        one("Relu", &["y"], vec![], "before any node makes it"),
    ]);
}

#[test]
fn overflowing_integers_do_not_panic() {
    let most = || ints("s", &[i64::MAX, i64::MAX]);
    for op in ["ReduceSum", "ReduceProd"] {
        let case = one(op, &["s"], vec![most()], "");
        assert!(
            complaint(op, "", MOST, || case.run()).is_none_or(|said| said.ends_with("is accepted")),
            "{op}"
        );
    }
}

#[test]
fn graph_is_rejected_when_it_has_too_many_nodes() {
    let mut graph = Builder::new("long", 1);
    let mut x = graph.input(Value::batch_of_f32("x", &[4]));
    for at in 0..=50_000 {
        x = graph.node("Relu", &format!("n{at}"), &[&x]);
    }
    graph.output(Value::batch_of_f32(&x, &[4]));
    let error = Network::new(graph.build().unwrap(), Device::Cpu).err().expect("too many").to_string();
    assert!(error.contains("50001 nodes, more than 50000"), "{error}");
}

#[test]
fn graph_is_rejected_when_it_has_a_cycle() {
    let mut graph = Builder::new("circle", 1);
    graph.input(Value::batch_of_f32("x", &[4]));
    graph.node("Add", "a", &["x", "b"]);
    graph.node("Relu", "b", &["a"]);
    graph.output(Value::batch_of_f32("b", &[4]));
    let model: Model = graph.build().unwrap();
    let error = Network::new(model, Device::Cpu).err().expect("a circle").to_string();
    assert!(error.contains("before any node makes it"), "{error}");
}
