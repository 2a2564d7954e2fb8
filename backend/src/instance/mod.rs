//! Instances: threads that run batches, or tasks where another server runs them, and the bounded queues that feed them.
//!
//! A request makes one hand-off each way: into the queue, which wakes a thread, and back through a one-shot channel. What is quick is
//! run where it was read instead ([`Seats`]).
//! Several threads may pull from one queue (a worker's instances: an idle one takes what has waited longest) or each
//! from its own (instances that a dispatcher of ours addresses singly).

mod arrivals;
mod batch;
mod counter;
mod job;
mod line;
mod queue;
mod run;
mod seats;
mod state;

pub(crate) use counter::{Counter, Unused};
pub(crate) use job::{Job, Order};
pub(crate) use queue::Queue;
pub(crate) use run::{Instance, Setup};
pub(crate) use seats::Seats;
