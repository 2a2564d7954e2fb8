//! Fingerprints of runs: digests of everything that the weights depend on.

use parm_parity_models::onnx::Model;
use sha2::{Digest, Sha256};

use crate::distil::Set;

/// A digest of the words, the data and the models.
pub(crate) fn fingerprint(words: &[&str], set: &Set, models: &[&Model]) -> String {
    let mut digest = Sha256::new();
    for word in words {
        digest.update((word.len() as u64).to_le_bytes());
        digest.update(word);
    }
    for array in [&set.inputs, &set.outputs] {
        array.shape().iter().for_each(|&size| digest.update((size as u64).to_le_bytes()));
        digest.update(bytemuck::cast_slice::<f32, u8>(array.data()));
    }
    set.labels.iter().flatten().for_each(|&label| digest.update((label as u64).to_le_bytes()));
    models.iter().for_each(|model| digest.update(model.bytes()));
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
