//! Stand-ins for a deployed model: a thinner network that learned what the deployed one says, row by row.
//!
//! A code mixes the queries of a group, so its parity models are of use to a group alone. A stand-in answers each query by
//! itself. What it learns from is what a parity model learns from, in groups of one; what it is worth depends on its
//! cost first, which the share of the features sets: half of them take about a quarter of the multiplications.

mod exam;
mod outputs;
mod recipe;
mod train;

pub use exam::{Standing, examine};
pub use recipe::StandInRecipe;
pub use train::{TrainedStandIn, train};
