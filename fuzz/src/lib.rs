//! Fuzz targets as plain functions. `fuzz_targets/` passes them to libFuzzer; ordinary tests run them on the seeds and on
//! variations of these.

pub mod frontends;
pub mod targets;
