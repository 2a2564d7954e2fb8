//! The crate from outside: operators and their gradients, whole networks, data sets.

mod data;
mod evaluate;
mod network;
mod operators;
mod pytorch;
mod sources;
mod support;
