//! The crate from outside: operators and their gradients, whole networks, data sets.

mod data;
mod network;
mod operators;
mod support;
