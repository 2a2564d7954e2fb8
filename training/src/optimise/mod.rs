//! Optimisation: Adam, its step size over time, and an average of the weights.

mod adam;
mod average;
mod rate;

pub use adam::Decay;
pub(crate) use adam::{Adam, Step};
pub(crate) use average::Average;
pub use rate::{Course, Rate};
