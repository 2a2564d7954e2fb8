//! Whole runs: compared with queueing theory, repeated, and under every fault.

mod faults;
mod policies;
mod repeatable;
mod sizes;
mod stand_ins;
mod support;
mod theory;
