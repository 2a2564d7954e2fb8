//! Stand-ins for a deployed model: cheaper networks that learned its answers, row by row.
//!
//! A code mixes the queries of a group, so its parity models serve only groups. A stand-in answers each query alone.
//! It is trained like a parity model with groups of one. Its graph comes from the user, or from `parm stand-in`, which cuts
//! channels and layers.

mod outputs;
mod recipe;
mod train;

pub use recipe::StandInRecipe;
pub use train::{Standing, TrainedStandIn, examine, train};
