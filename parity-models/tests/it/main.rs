//! Tests of reading, checking and rewriting ONNX files, and of verifying bundles.

mod bundle;
mod check;
mod damage;
mod generated;
mod hostile;
mod inspect;
mod rewrite;
mod run;
mod sample;
mod splice;
mod thin;
