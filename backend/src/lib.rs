//! Engines behind one synchronous trait, instances, the worker and its fault injection.
mod distribution;
pub mod engine;
mod error;
mod pause;

pub use distribution::Distribution;
pub use error::Error;
