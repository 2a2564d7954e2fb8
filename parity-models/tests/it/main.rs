//! Tests of reading, checking and rewriting ONNX files, and of verifying bundles.

mod bundle;
mod check;
mod damage;
mod hostile;
mod inspect;
mod rewrite;
mod run;
mod sample;
mod thin;
mod weights;
