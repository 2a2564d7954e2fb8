//! The dispatcher's promises in the virtual world, whole runs compared with theory, experiments, and the tuner on whole problems.

mod auditor;
mod causes;
mod concurrency;
mod conditions;
mod experiments;
mod faults;
mod frontends;
mod policies;
mod promises;
mod recorded;
mod rivals;
mod shares;
mod sizes;
mod support;
mod theory;
mod transcript;
mod tuning;
