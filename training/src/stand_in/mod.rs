//! Stand-ins for a deployed model: thinner networks that learned its answers, row by row.
//!
//! A code mixes the queries of a group, so its parity models serve only groups. A stand-in answers each query alone.
//! It is trained like a parity model with groups of one. Its value depends first on its cost, which the share of
//! features sets: half of them take about a quarter of the multiplications.

mod outputs;
mod recipe;
mod train;

pub use recipe::StandInRecipe;
pub use train::{Standing, TrainedStandIn, examine, train};
