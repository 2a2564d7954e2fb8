//! Open-loop load and honest tails: when requests are sent, how late, and what may be claimed about the result.
//!
//! Knows the protocol, not the models.

mod error;
pub mod grader;
pub mod inputs;
pub mod live;
pub mod outcome;
pub mod pacer;
pub mod prompt;
pub mod recorder;
pub mod report;
pub mod requirement;
pub mod run;
pub mod shape;
pub mod statistics;
pub mod validity;

pub use error::Error;
