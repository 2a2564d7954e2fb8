//! What may be claimed about a tail, and how surely.

pub mod bootstrap;
pub mod correlation;
mod estimate;
pub mod evidence;
pub mod kolmogorov;
pub mod series;

pub use estimate::Estimate;
