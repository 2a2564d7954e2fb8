//! Bundles: a deployed model, its parity models and stand-ins, and all that ties them together.
//!
//! A parity model is useless, or worse, beside another deployed model than the one that it was trained for, under
//! another code, or with its slots in another order. So `NAME/parm.toml` beside the deployed model says what belongs
//! together and by which digests, how well it was measured to work, and how sure a reconstruction must be; and
//! [`verify()`] holds the files to it before anything is served.

mod calibration;
mod curve;
mod deployed;
mod manifest;
mod measured;
mod numbers;
mod parity;
mod problem;
mod publish;
mod signature;
mod stand_in;
mod verify;

pub use calibration::{Calibration, Case, expected_error};
pub use deployed::{Deployed, Input, Meaning, Output, Preprocessing, Range, cosine};
pub use manifest::{FORMAT, Manifest};
pub use measured::{Accuracy, Scores, Start, Training};
pub use parity::{Learned, ModelFile, Parity};
pub use problem::Problem;
pub use publish::put_model;
pub use signature::Signature;
pub use stand_in::{MeasuredCost, StandIn, StandInAccuracy, misfit, misplaced};
pub use verify::{ParityReport, Report, StandInReport, fits, verify};
