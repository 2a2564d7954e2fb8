//! The targets of the fuzzer, as plain functions: `fuzz_targets/` hands them to libFuzzer, and the ordinary tests run them
//! on the seeds and on what a small generator makes of these.

pub mod targets;
