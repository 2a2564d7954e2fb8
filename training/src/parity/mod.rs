//! Parity models for a deployed model: recipe, training, and the bundle that serves them.

mod publish;
mod recipe;
mod train;

pub use parm_parity_models::bundle::Start;
pub use publish::{
    CodeRecord, Publication, StandInRecord, publish, publish_base, publish_learned, publish_stand_in,
};
pub use recipe::ParityRecipe;
pub use train::{TrainedParities, examine, train};

pub use crate::learn::Materials;
