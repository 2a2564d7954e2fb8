//! Statistics of latency tails: quantiles, their intervals, and whether the data supports a claim.

pub mod bootstrap;
pub mod correlation;
mod estimate;
pub mod evidence;
pub mod kolmogorov;
pub mod series;
pub mod student;

pub use estimate::Estimate;
