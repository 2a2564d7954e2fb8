//! A learned code (*Learning a Code*, arXiv 1806.01259): the deployed model serves the coded queries, and two networks
//! are learned around it.
//!
//! The encoder makes r coded queries from k queries; the decoder sees all k + r outputs, zeros for what is lost, and
//! puts out k predictions. Both are trained together through the deployed model, whose weights stay, over every case
//! of up to r lost predictions.

mod nets;
mod recipe;
mod task;
mod train;

pub use recipe::{CodeLoss, CodeRecipe, Encoder};
pub use train::{TrainedCode, train};
