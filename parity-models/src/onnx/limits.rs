//! Limits on the data read from disk.

use serde::{Deserialize, Serialize};

/// Limits on an ONNX model's files. A wrong path or a wrong length must not exhaust the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest `model.onnx`, in bytes. Default 2 GiB, the maximum of the format.
    pub model_bytes: u64,
    /// Largest sum of the external data files of a model, in bytes. Default 16 GiB.
    pub external_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { model_bytes: 2 << 30, external_bytes: 16 << 30 }
    }
}
