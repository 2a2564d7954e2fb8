//! Parity models for a deployed model: recipe, training, calibration, and the bundle that serves them.

mod calibrate;
mod check;
mod derive;
mod fingerprint;
mod publish;
mod recipe;
mod train;

pub(crate) use calibrate::calibrate;
pub(crate) use check::{hold, rows};
pub(crate) use fingerprint::fingerprint;
pub use parm_parity_models::bundle::Start;
pub use publish::{
    CodeRecord, Publication, StandInRecord, publish, publish_base, publish_learned, publish_stand_in,
};
pub use recipe::ParityRecipe;
pub use train::{Materials, TrainedParities, examine, train};
pub(crate) use train::{copy, ends_in_softmax, finished, last, meaning, taught};
