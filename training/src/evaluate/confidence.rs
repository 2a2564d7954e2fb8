//! Confidence of reconstructions.

use parm_parity_models::bundle::{Calibration, ClassScores, Meaning};

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
