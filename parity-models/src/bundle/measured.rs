//! The records of training and evaluation of a parity.

use serde::{Deserialize, Serialize};

/// The training of a parity: enough to repeat it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Training {
    /// The command line.
    pub command: String,
    /// Program and version.
    pub tool: String,
    /// The data set.
    pub dataset: String,
    /// Inputs from which groups were drawn.
    pub samples: u64,
    /// Groups drawn in an epoch.
    pub groups_per_epoch: u64,
    /// Epochs.
    pub epochs: u64,
    /// Seed.
    pub seed: u64,
    /// The loss.
    pub loss: String,
    /// The initial weights.
    pub start: Start,
    /// Other remarks, such as lossy data.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The initial weights of a parity model.
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
    /// The metric, such as `top-1` or `mean IoU`.
    pub metric: String,
    /// Accuracy of predictions (A_a in the paper).
    pub available: f64,
    /// Accuracy of reconstructions (A_d).
    pub degraded: f64,
    /// Accuracy of all answers for some fractions of unavailable predictions (A_o).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overall: Vec<Scores>,
    /// Accuracy of the best constant answer. Reconstructions must be better than this to be useful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constant_answer: Option<f64>,
    /// Accuracy of a backup model with 1/k of the cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<f64>,
    /// Number of measured reconstructions.
    #[serde(default)]
    pub reconstructions: u64,
}

/// The accuracy of all answers if some are reconstructions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scores {
    /// Fraction of predictions that are unavailable.
    pub unavailable: f64,
    /// Accuracy of all answers.
    pub overall: f64,
}
