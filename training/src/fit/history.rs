//! The history of a run: one line of JSON per epoch.

use serde::{Deserialize, Serialize};

/// One epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Its number, from 1.
    pub epoch: u64,
    /// Mean loss over its steps.
    pub loss: f64,
    /// Score on held-out data; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub score: Option<f64>,
    /// Step size at its beginning.
    pub rate: f32,
    /// Number of groups.
    pub groups: u64,
    /// Seconds that its steps took.
    pub seconds: f64,
}

pub(super) fn lines(history: &[Epoch]) -> String {
    let line = |epoch| serde_json::to_string(epoch).expect("plain numbers") + "\n";
    history.iter().map(line).collect()
}
