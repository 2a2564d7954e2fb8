//! What an evaluation found.

use parm_encoder::CodeSpec;
use parm_parity_models::bundle::{Accuracy, Scores};
use serde::Serialize;

use super::{Kept, Metric};

/// What an evaluation found. Scores are fractions of 1, or errors in the data's own unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The code.
    pub code: CodeSpec,
    /// How answers were judged.
    pub metric: Metric,
    /// Rows of data.
    pub rows: usize,
    /// Groups that they made.
    pub groups: usize,
    /// Whether predictions go to clients as they are while nothing is lost.
    pub systematic: bool,
    /// A_a: of answers while nothing is lost. For a code that is not systematic these are approximations too.
    pub available: f64,
    /// Of the deployed model by itself, without any code.
    pub deployed: f64,
    /// A_d: of reconstructions alone, by the number of losses in a group from one on.
    pub degraded: Vec<Degraded>,
    /// A_o: of all answers, by the fraction of outputs that are unavailable.
    pub overall: Vec<Overall>,
    /// Of the same answer to everybody, the best such.
    pub constant_answer: f64,
    /// Of a backup model, where one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<f64>,
    /// What keeping only the surest reconstructions buys, at one loss a group.
    pub confidence: Vec<Kept>,
    /// How far confidence is in the mean from how often reconstructions are right, at one loss a group; where it says which class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration_error: Option<f64>,
}

/// Scores of reconstructions alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Degraded {
    /// Losses in a group.
    pub lost: usize,
    /// A_d.
    pub score: f64,
    /// The score that reconstructions get when the deployed model's answers are taken as right.
    pub agreement: f64,
    /// A_d of each slot.
    pub by_slot: Vec<f64>,
    /// Loss patterns that were tried on every group.
    pub patterns: usize,
    /// Reconstructions that were judged.
    pub reconstructions: u64,
    /// The standard error of A_a - A_d of the same rows; `None` where one group is all there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_error: Option<f64>,
}

/// The score of all answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Overall {
    /// The fraction of outputs that are unavailable.
    pub unavailable: f64,
    /// A_o.
    pub score: f64,
}

impl Report {
    /// A_d at one loss a group.
    pub fn degraded(&self) -> f64 {
        self.degraded.first().map_or(0.0, |degraded| degraded.score)
    }

    /// A_a - A_d in points, at one loss a group, against the deployed model by itself. Negative for errors.
    pub fn gap(&self) -> f64 {
        100.0 * (self.deployed - self.degraded())
    }

    /// A_o at a fraction of unavailable outputs. A systematic code pays for a loss with one answer; any other with
    /// all answers of the group, as soon as one of its k + r outputs is missing.
    pub fn overall_at(&self, unavailable: f64) -> f64 {
        let outputs = (self.code.k + self.code.r) as i32;
        let degraded = if self.systematic { unavailable } else { 1.0 - (1.0 - unavailable).powi(outputs) };
        (1.0 - degraded) * self.available + degraded * self.degraded()
    }

    /// The score of all answers when every group loses exactly one: equal footing for codes that are systematic and
    /// codes that are not.
    pub fn one_loss_a_group(&self) -> f64 {
        let k = self.code.k as f64;
        let degraded = if self.systematic { 1.0 / k } else { 1.0 };
        (1.0 - degraded) * self.available + degraded * self.degraded()
    }

    /// As a bundle stores it; `None` for errors, which are no fraction of 1.
    pub fn accuracy(&self) -> Option<Accuracy> {
        self.metric.ascends().then(|| Accuracy {
            metric: self.metric.to_string(),
            available: self.available,
            degraded: self.degraded(),
            overall: self
                .overall
                .iter()
                .map(|at| Scores { unavailable: at.unavailable, overall: at.score })
                .collect(),
            constant_answer: Some(self.constant_answer),
            backup: self.backup,
            reconstructions: self.degraded.first().map_or(0, |degraded| degraded.reconstructions),
        })
    }
}
