//! Load for servers of language models: open loop, with times to the first token and between tokens.
//!
//! The figures are those of vLLM's benchmark and MLPerf: time to first token (TTFT), time per output token after the first
//! (TPOT), time between tokens (ITL), and end-to-end latency. All that begin with a request count from its intended time.
//!
//! The first token is the first chunk with content: comments, events without data and chunks that only name a role do not
//! count, since a server can send them before it has computed anything.
//!
//! Reading order: [`api`] makes requests, [`events`] reads streams, `exchange` sends one request over a [`Wire`], [`run`]
//! sends all of them on their schedule, [`report`] judges the result. This crate opens no connection: the caller supplies
//! the wire, so that crates without a network can use the statistics.

pub mod api;
pub mod events;
mod exchange;
pub mod report;
pub mod run;
mod sample;
#[cfg(test)]
mod tests;
mod wire;

pub use exchange::FailureKind;
pub use sample::{ChatSample, write};
pub use wire::{Incoming, Wire};
