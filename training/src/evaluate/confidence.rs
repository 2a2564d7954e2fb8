//! Confidence of reconstructions, and the score of the most confident ones.

use parm_parity_models::bundle::{Calibration, ClassScores, Meaning};
use serde::Serialize;

/// Points of the curve.
const POINTS: usize = 20;

/// Computes the confidence of an output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence {
    meaning: Meaning,
    calibration: Calibration,
}

impl Confidence {
    /// For outputs of this meaning; `None` unless they are scores of classes.
    pub fn of(meaning: Meaning, calibration: Calibration) -> Option<Self> {
        meaning.has_classes().then_some(Self { meaning, calibration })
    }

    /// The confidence of one output; 0 if a score is NaN.
    pub fn measure(self, scores: &[f32]) -> f32 {
        self.calibration.confidence(ClassScores::new(scores, scores.len(), self.meaning)).unwrap_or(0.0)
    }
}

/// The reconstructions above a threshold of confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Kept {
    /// The fraction above it.
    pub kept: f64,
    /// The threshold.
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
