//! A network exported by PyTorch (`pytorch/export.py`): gates, depthwise convolutions, GELU and a layer
//! normalisation, with folded batch normalisations.

use std::num::NonZeroUsize;

use parm_parity_models::onnx::rewrite::{Design, End, Weights, derive};
use parm_parity_models::onnx::{Limits, Model};
use parm_training::data::{self, Samples};
use parm_training::{Array, Device, Host, Network};

use crate::network::{descend, tract};
use crate::support::agree;

fn model() -> Model {
    let bytes: &[u8] = include_bytes!("cnn.onnx");
    Model::from_bytes(bytes.to_vec(), &Limits::default()).unwrap()
}

fn saved(name: &str) -> Array<f32> {
    let path = format!("{}/tests/it/pytorch/{name}.npy", env!("CARGO_MANIFEST_DIR"));
    Samples::npy(path.as_ref(), None, data::Limit::default()).unwrap().inputs
}

#[test]
fn network_gives_the_outputs_of_pytorch() {
    let network = Network::new(model(), Device::Cpu).unwrap();
    let outputs = network.predict(&[saved("inputs").into()]).unwrap();
    assert!(agree(&outputs[0], &saved("outputs").into(), 1e-4), "{outputs:?}");
}

/// The graph of a parity model with this many slots.
fn parity(slots: usize) -> Model {
    let size = NonZeroUsize::new(slots).unwrap();
    let parity = Design { stem: size, head: size, end: End::Raw, start: Weights::Deployed };
    derive(&model(), &parity).unwrap()
}

/// Trains a derived model for two steps and compares the written file with tract.
fn trained(derived: Model, slots: usize) {
    let images = saved("inputs");
    let pixels: usize = 28 * 28;
    let mut network = Network::new(derived, Device::Cpu).unwrap();
    let query = Array::new(vec![1, slots, 28, 28], images.data()[..slots * pixels].to_vec()).unwrap();
    let query = [Host::from(query)];
    let before = network.predict(&query).unwrap();
    let shape = before[0].shape().to_vec();
    let count = shape.iter().product::<usize>();
    assert_eq!(count, slots * 10, "{shape:?}");
    for _ in 0..2 {
        let changed = descend(&mut network, &query, &Array::full(shape.clone(), 1.0), 1e-4);
        assert_eq!(changed, network.parameters().count(), "a parameter has no gradient");
    }
    let after = network.predict(&query).unwrap();
    let sum = |outputs: &[Host]| outputs[0].floats().unwrap().data().iter().sum::<f32>();
    assert!(sum(&after) < sum(&before) - 1e-3, "{} {}", sum(&before), sum(&after));
    assert!(agree(&tract(&network.export().unwrap(), &query[0]), &after[0], 1e-4));
}

#[test]
fn models_derived_from_pytorch_train_and_run_in_tract() {
    trained(parity(1), 1);
    trained(parity(2), 2);
}
