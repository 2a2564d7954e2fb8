//! The tuner on whole problems.

mod recorded;
mod tuning;
