//! Instances and the bounded queues that feed them.
//!
//! An instance is a thread that runs batches. A request changes threads twice:
//! into the queue, which wakes a thread, and back through a one-shot channel. Short runs use the reading thread instead
//! ([`Seats`]). Several threads may take from one queue (a worker's instances) or each from its own (instances that our
//! dispatcher addresses individually).

mod queue;
mod run;
mod seats;

pub(crate) use queue::{Grants, Queue};
pub(crate) use run::{Job, Pending, Setup};
pub(crate) use seats::Seats;
