//! Bounds on what is read from disk.

use serde::{Deserialize, Serialize};

/// Bounds on an ONNX model's files. A model comes from its owner, but a wrong path or a lying length must not take
/// the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest `model.onnx`, in bytes. Default 2 GiB, which is also the most that the format can hold.
    pub model_bytes: u64,
    /// Largest sum of the external data files beside a model, in bytes. Default 16 GiB.
    pub external_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { model_bytes: 2 << 30, external_bytes: 16 << 30 }
    }
}
