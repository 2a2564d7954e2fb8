//! Damaged files give errors, never panics.

use parm_parity_models::onnx::rewrite::{Design, End, Student, Weights, derive, student};
use parm_parity_models::onnx::{Defect, Limits, Model, Tensor};

use crate::sample;

/// Calls everything on a file. Any result is accepted, but no panic.
fn use_fully(bytes: Vec<u8>, weights: &[Tensor]) {
    let Ok(model) = Model::from_bytes(bytes, &Limits::default()) else { return };
    let slots = 2.try_into().unwrap();
    for start in [Weights::Deployed, Weights::Scratch { seed: 1 }] {
        for end in [End::AsDeployed, End::Raw] {
            let _ = derive(&model, &Design { stem: slots, head: slots, end, start });
            let _ = student(&model, &Student { width: 0.5, end, start });
        }
    }
    let _ = (model.graph(), model.inspect().to_string(), model.with_weights(weights));
}

/// The structure lies between the weights: damaged weights only change numbers.
fn check(model: &Model) {
    let bytes = model.bytes();
    let weights: Vec<Tensor> = model.graph().unwrap().initializers.into_values().collect();
    for at in 0..bytes.len() {
        if at % 5 == 0 {
            use_fully(bytes[..at].to_vec(), &weights);
        }
        for damage in [1, 0x08, 0x80] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= damage;
            use_fully(damaged, &weights);
        }
    }
}

#[test]
fn damaged_file_is_an_error_and_never_a_panic() {
    check(&sample::tiny());
}

#[test]
fn truncated_file_is_malformed() {
    let bytes = sample::mlp().bytes().clone();
    let cut = Model::from_bytes(bytes.slice(..bytes.len() - 1), &Limits::default());
    assert!(matches!(cut, Err(Defect::Malformed { .. })));
    assert!(matches!(Model::from_bytes(Vec::new(), &Limits::default()), Err(Defect::NoGraph)));
}
