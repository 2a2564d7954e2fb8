//! ONNX files: read, checked, given new weights, rewritten.

mod check;
mod inspect;
mod sample;
mod splice;
