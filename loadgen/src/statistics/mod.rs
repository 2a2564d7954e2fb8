//! What may be claimed about a tail, and how surely.

pub mod bootstrap;
pub mod correlation;
mod estimate;
pub mod evidence;
pub mod kolmogorov;
pub mod series;
pub mod student;

pub use estimate::Estimate;
