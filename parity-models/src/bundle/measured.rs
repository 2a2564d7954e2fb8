//! What training and evaluation found out about a parity.

use serde::{Deserialize, Serialize};

/// How a parity was trained: enough to do it again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Training {
    /// The command line.
    pub command: String,
    /// Program and version.
    pub tool: String,
    /// The data set.
    pub dataset: String,
    /// Inputs that groups were drawn from.
    pub samples: u64,
    /// Groups drawn in an epoch.
    pub groups_per_epoch: u64,
    /// Epochs.
    pub epochs: u64,
    /// Seed.
    pub seed: u64,
    /// The loss.
    pub loss: String,
    /// What the weights started from.
    pub start: Start,
    /// Anything else worth knowing, such as lossy data.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// What the weights of a parity model started from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The deployed model's weights.
    #[default]
    Deployed,
    /// Random weights.
    Scratch,
}

/// Accuracies on held-out data, as fractions of 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accuracy {
    /// What is measured, such as `top-1` or `mean IoU`.
    pub metric: String,
    /// Of predictions, when they are available (the paper's A_a).
    pub available: f64,
    /// Of reconstructions (A_d).
    pub degraded: f64,
    /// Of all answers at some fractions of unavailable predictions (A_o).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overall: Vec<Scores>,
    /// Of the same answer to every query, the best such. A reconstruction that does no better is worth nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constant_answer: Option<f64>,
    /// Of a backup model of 1/k of the cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<f64>,
    /// Reconstructions that were measured.
    #[serde(default)]
    pub reconstructions: u64,
}

/// The accuracy of all answers when some are reconstructions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scores {
    /// Fraction of predictions that are unavailable.
    pub unavailable: f64,
    /// Accuracy of all answers.
    pub overall: f64,
}
