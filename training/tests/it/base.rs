//! Base models: sizes as published, and equal results in another engine.

use std::num::NonZeroUsize;

use parm_parity_models::onnx::Model;
use parm_parity_models::onnx::rewrite::{Design, End, Weights, derive};
use parm_random::Random;
use parm_training::base::{self, Base, Shape, build};
use parm_training::data::{self, Samples};
use parm_training::{Array, Device, Error, Host, Network};

use crate::network::tract;
use crate::support::agree;
use crate::task::alone;

fn model(name: &str, dims: &[usize], outputs: usize) -> Model {
    build(name, &Shape { dims: dims.to_vec(), outputs, seed: 7 }).unwrap()
}

fn rows(dims: &[usize]) -> Host {
    let shape: Vec<usize> = std::iter::once(2).chain(dims.iter().copied()).collect();
    let values = Random::new(3).uniforms(1.0, shape.iter().product());
    Array::new(shape, values).unwrap().into()
}

#[test]
fn base_models_have_as_many_weights_as_published() {
    for (name, dims, outputs, weights) in [
        ("resnet-small", &[1, 28, 28][..], 10, 77_754),
        ("resnet18", &[3, 32, 32], 10, 11_173_962),
        ("resnet18", &[1, 28, 28], 10, 11_172_810),
        ("vgg11", &[3, 32, 32], 10, 9_228_362),
        ("speech", &[1, 20, 13], 10, 56_554),
        ("boxes", &[3, 64, 64], 4, 126_548),
        ("bytes", &[2048], 214, 89_566),
    ] {
        let graph = model(name, dims, outputs).graph().unwrap();
        let trained = graph.initializers.iter().filter(|(name, _)| !name.contains("running_"));
        assert_eq!(trained.map(|(_, weight)| weight.len()).sum::<usize>(), weights, "{name}");
    }
}

/// The shape of the answers of a network to two rows, which must be tract's answers too.
fn answered(name: &str, model: Model, rows: &Host) -> Vec<usize> {
    let network = Network::new(model, Device::Cpu).unwrap();
    let output = network.predict(std::slice::from_ref(rows)).unwrap().remove(0);
    assert!(agree(&tract(&network.export().unwrap(), rows), &output, 1e-4), "{name}");
    output.shape().to_vec()
}

#[test]
fn base_models_and_parity_models_give_the_same_in_tract() {
    let two = NonZeroUsize::new(2).unwrap();
    let (end, start) = (End::Raw, Weights::Deployed);
    for (name, dims, outputs) in [
        ("mlp", [1, 28, 28], 10),
        ("lenet", [1, 28, 28], 10),
        ("resnet-small", [3, 32, 32], 10),
        ("resnet18", [3, 9, 10], 10),
        ("vgg11", [1, 20, 13], 30),
        ("speech", [1, 20, 13], 10),
        ("boxes", [3, 33, 40], 4),
    ] {
        let deployed = model(name, &dims, outputs);
        let parity = derive(&deployed, &Design { stem: two, head: two, end, start }).unwrap();
        let shapes = [vec![2, outputs], vec![2, 2, outputs]];
        for ((model, slots), shape) in [(deployed, 1), (parity, 2)].into_iter().zip(shapes) {
            let rows = rows(&[slots * dims[0], dims[1], dims[2]]);
            assert_eq!(answered(name, model, &rows), shape, "{name}");
        }
    }
}

#[test]
fn network_of_bytes_agrees_with_tract() {
    let two = NonZeroUsize::new(2).unwrap();
    let (end, start) = (End::Raw, Weights::Scratch { seed: 3 });
    let deployed = model("bytes", &[256], 9);
    let mixed = derive(&deployed, &Design { stem: two, head: two, end, start }).unwrap();
    for (model, length, values) in [(deployed, 256, 9), (mixed, 512, 18)] {
        let tokens: Vec<i64> = (0..2 * length as i64).map(|at| at * 37 % 257).collect();
        let rows = Host::Ints(Array::new(vec![2, length], tokens).unwrap());
        assert_eq!(answered("bytes", model, &rows).iter().product::<usize>(), 2 * values);
    }
}

#[test]
fn training_rejects_a_class_without_rows() {
    let samples = Samples::new(Array::full(vec![40, 1, 6, 6], 0.5), Some(vec![2; 40])).unwrap();
    let refused = alone(|around| base::train(&samples, &Base::default(), Device::Cpu, around)).map(|_| ());
    assert_eq!(refused, Err(Error::Data(data::Unusable::EmptyClass { class: 0, classes: 3 })));
}

#[test]
fn build_rejects_rows_and_names_the_supported_ones() {
    let error = build("vgg11", &Shape { dims: vec![784], outputs: 10, seed: 1 }).err().unwrap();
    assert!(error.to_string().contains("[channels, 8 or more, 8 or more]"), "{error}");
}
