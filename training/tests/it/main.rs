//! Tests of the crate's public API: operators and their gradients, whole networks, data sets.

mod base;
mod code;
mod data;
mod evaluate;
mod matrix;
mod network;
mod operators;
mod outputs;
mod parity;
mod pytorch;
mod several;
mod shipped;
mod stand_in;
mod support;
mod task;
