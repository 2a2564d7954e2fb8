//! Whole runs: against queueing theory, against themselves, and through every fault.

mod detection;
mod faults;
mod fleets;
mod policies;
mod repeatable;
mod stand_ins;
mod support;
mod tenants;
mod theory;
