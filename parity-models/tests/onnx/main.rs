//! ONNX files: read, checked, given new weights, rewritten.

mod check;
mod inspect;
mod rewrite;
mod run;
mod sample;
mod splice;
