//! Parity models for a deployed model: recipe, training, calibration, and the bundle that serves them.

mod body;
mod calibrate;
mod check;
mod derive;
mod fingerprint;
mod publish;
mod recipe;
mod train;

pub use body::{Body, Chosen};
pub(crate) use check::{hold, rows};
pub(crate) use fingerprint::fingerprint;
pub use parm_parity_models::bundle::Start;
pub use publish::{CodeRecord, Publication, publish, publish_base, publish_learned};
pub use recipe::ParityRecipe;
pub(crate) use train::meaning;
pub use train::{Materials, TrainedParities, examine, train};
