//! Learned codes (*Learning a Code*, arXiv 1806.01259): two networks around the deployed model.
//!
//! The deployed model serves the coded queries. The encoder makes r coded queries from k queries; the decoder reads
//! all k + r outputs, zeros for lost ones, and makes k predictions. Both are trained together through the deployed
//! model, whose weights are frozen, over every case of up to r lost predictions.

mod nets;
mod recipe;
mod task;
mod train;

pub use recipe::{CodeLoss, CodeRecipe, Encoder};
pub use train::{TrainedCode, train};
