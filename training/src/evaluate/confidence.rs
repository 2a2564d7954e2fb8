//! How sure a reconstruction is, and what keeping only the surest buys.

use parm_parity_models::bundle::{Calibration, Meaning};
use serde::Serialize;

/// Points of the curve.
const POINTS: usize = 20;

/// How the confidence of an output is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence {
    meaning: Meaning,
    calibration: Calibration,
}

impl Confidence {
    /// For outputs of this meaning; `None` where they are no scores of classes.
    pub fn of(meaning: Meaning, calibration: Calibration) -> Option<Self> {
        meaning.has_classes().then_some(Self { meaning, calibration })
    }

    /// The confidence of one output; 0 where it holds what is no number.
    pub fn measure(self, scores: &[f32]) -> f32 {
        self.calibration.confidence(scores, scores.len(), self.meaning).unwrap_or(0.0)
    }
}

/// What is left when only the surest reconstructions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Kept {
    /// The fraction that is kept.
    pub kept: f64,
    /// The least confidence among them.
    pub threshold: f32,
    /// Their score.
    pub score: f64,
}

/// The curve over confidences and scores of reconstructions, from keeping all to keeping few.
pub(super) fn curve(mut reconstructions: Vec<(f32, f64)>) -> Vec<Kept> {
    reconstructions.sort_by(|a, b| b.0.total_cmp(&a.0));
    let total = reconstructions.len();
    let (mut sum, mut sums) = (0.0, Vec::with_capacity(total));
    sums.extend(reconstructions.iter().map(|(_, score)| {
        sum += score;
        sum
    }));
    let counts = (1..=POINTS).rev().map(|point| total * point / POINTS).filter(|count| *count > 0);
    counts
        .map(|count| Kept {
            kept: count as f64 / total as f64,
            threshold: reconstructions[count - 1].0,
            score: sums[count - 1] / count as f64,
        })
        .collect()
}
