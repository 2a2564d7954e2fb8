//! ONNX files read, checked, given new weights and rewritten; bundles held to their files.

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
