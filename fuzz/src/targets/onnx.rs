//! Any bytes as an ONNX file: read, inspected, given new weights, and made into a parity model.

use parm_parity_models::onnx::rewrite::{Design, End, Weights, derive};
use parm_parity_models::onnx::{Limits, Model};

/// Far above any input of the fuzzer, and far below the machine's memory.
const LIMITS: Limits = Limits { model_bytes: 1 << 20, external_bytes: 1 << 20 };

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(model) = Model::from_bytes(data.to_vec(), &LIMITS) else { return };
    let _ = model.inspect().to_string();
    if let Ok(graph) = model.graph() {
        let weights: Vec<_> = graph.initializers.into_values().collect();
        if let Ok(bytes) = model.with_weights(&weights) {
            Model::from_bytes(bytes, &LIMITS).expect("what we write can be read");
        }
    }
    let slots = 2.try_into().expect("two is not zero");
    let (end, start) = (End::AsDeployed, Weights::Deployed);
    let _ = derive(&model, &Design { stem: slots, head: slots, end, start });
}
