//! Bundles: a deployed model, its parity models and stand-ins, and their measured properties.
//!
//! A parity model is useless with another deployed model than the one for which it was trained, with another code, or
//! with its slots in another order. `NAME/parm.toml` next to the deployed model therefore lists the models with their
//! digests, the measured accuracy, and the confidence that a reconstruction must have. [`verify()`] checks the files
//! against it before they are served.

mod calibration;
mod class_scores;
mod curve;
mod deployed;
mod manifest;
mod meaning;
mod measured;
mod numbers;
mod parity;
mod problem;
mod publish;
mod signature;
mod stand_in;
mod verify;

pub use calibration::{Calibration, expected_error};
pub use class_scores::{Case, ClassScores, floats};
pub use deployed::{Deployed, Input, Output, Preprocessing, Range};
pub use manifest::{FORMAT, Manifest};
pub use meaning::{Meaning, TOLERANCE, best, cosine, distance};
pub use measured::{Accuracy, Scores, Start, Training};
pub use parity::{Learned, ModelFile, Parity};
pub use problem::Problem;
pub use publish::{Beside, put_model};
pub use signature::Signature;
pub use stand_in::{MeasuredCost, StandIn, StandInAccuracy, misfit, misplaced};
pub use verify::{ParityReport, Report, StandInReport, fits, verify};
