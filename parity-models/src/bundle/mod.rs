//! Bundles: a deployed model, its parity models and stand-ins, and their measured properties.
//!
//! A parity model is useless with another deployed model than the one for which it was trained, with another code, or
//! with its slots in another order. `NAME/parm.toml` next to the deployed model therefore lists the models with their
//! digests, the measured accuracy, and the confidence that a reconstruction must have. [`verify()`] checks the files
//! against it before they are served.

mod calibration;
mod curve;
mod manifest;
mod meaning;
mod verify;

pub use calibration::{Calibration, Case, ClassScores, expected_error, floats};
pub use manifest::{
    Accuracy, Beside, Deployed, FORMAT, Input, Learned, Manifest, MeasuredCost, ModelFile, Output, Parity,
    Preprocessing, Range, Scores, StandIn, StandInAccuracy, Start, Training, put_model,
};
pub use meaning::{Meaning, TOLERANCE, best, cosine, distance};
pub use verify::{ParityReport, Report, Signature, StandInReport, fits, misfit, misplaced, verify};
