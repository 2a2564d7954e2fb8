//! Integration tests of the real binary, in one test program.

mod crate_graph;
mod links;
