//! Cells: single runs of a matrix.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Matrix;

/// One run of a matrix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// Data set.
    pub data: String,
    /// Base model.
    pub base: String,
    /// Recipe.
    pub recipe: String,
    /// Queries in a group.
    pub k: usize,
    /// Parities of a group.
    pub r: usize,
    /// Seed.
    pub seed: u64,
}

impl Cell {
    /// A key that changes with every setting that the result depends on: a result with another key belongs to another
    /// run.
    pub fn key(&self, matrix: &Matrix) -> String {
        short(matrix, self, &(self, matrix.foundation(self), matrix.way(self)))
    }

    /// The same for its deployed model, which other cells share.
    pub(super) fn base_key(&self, matrix: &Matrix) -> String {
        short(matrix, self, &(&self.data, matrix.foundation(self)))
    }
}

/// A digest of settings, including those of the data if there are any.
fn short(matrix: &Matrix, cell: &Cell, settings: &impl Serialize) -> String {
    let settings = match matrix.data[&cell.data].settings() {
        Some(data) => serde_json::to_string(&(settings, data)),
        None => serde_json::to_string(settings),
    };
    let settings = settings.expect("settings are plain values");
    Sha256::digest(settings.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { data, base, recipe, k, r, seed } = self;
        write!(f, "{data} {base} {recipe} k={k} r={r} seed={seed}")
    }
}
