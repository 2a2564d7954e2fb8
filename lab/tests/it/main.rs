//! The dispatcher's promises in the virtual world, whole runs compared with theory, experiments, and the tuner on whole problems.

mod auditor;
mod conditions;
mod experiments;
mod frontends;
mod policies;
mod promises;
mod rivals;
mod shares;
mod simulator;
mod support;
mod tuner;
