//! Integration tests of the real binary, in one test program.

mod chaos;
mod commands;
mod crate_graph;
mod documents;
mod links;
mod robustness;
mod serving;
mod support;
mod tracing;
