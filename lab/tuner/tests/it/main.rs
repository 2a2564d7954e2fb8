//! The tuner on whole problems.

mod causes;
mod recorded;
mod transcript;
mod tuning;
