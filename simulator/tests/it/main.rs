//! Whole runs: against queueing theory, against themselves, and through every fault.

mod faults;
mod repeatable;
mod support;
mod theory;
