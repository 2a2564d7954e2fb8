//! Whole runs: compared with queueing theory, repeated, and under every fault.

mod detection;
mod faults;
mod fleets;
mod policies;
mod repeatable;
mod sizes;
mod stand_ins;
mod support;
mod tenants;
mod theory;
