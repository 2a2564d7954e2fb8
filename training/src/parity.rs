//! Parity models for a deployed model: recipe, training, calibration, and the bundle that serves them.

mod calibrate;
mod check;
mod fingerprint;
mod publish;
mod recipe;
mod train;

pub(crate) use check::{hold, rows};
pub(crate) use fingerprint::fingerprint;
pub use parm_parity_models::bundle::Start;
pub use publish::{Entry, Publication, publish, publish_base, publish_learned};
pub use recipe::{Body, Recipe};
pub(crate) use train::meaning;
pub use train::{Materials, Trained, examine, train};
