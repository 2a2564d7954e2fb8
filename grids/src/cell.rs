//! Cells, their keys, and digests of their inputs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A cell of a grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The stable key: it changes with every setting that the result depends on.
    pub key: String,
    /// Its name in messages.
    pub name: String,
    /// Cells of one group take similar times for the same estimate.
    pub group: String,
    /// Rough seconds of its run, before any cell of its group is finished.
    pub estimate_s: f64,
    /// The digest of each input by its name. Empty: any digest is accepted that all results share.
    pub inputs: BTreeMap<String, String>,
}

/// Returns the SHA-256 of bytes as hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the key of a cell with these settings: 16 hexadecimal digits.
pub fn key(settings: &[u8]) -> String {
    digest(settings)[..16].to_owned()
}
