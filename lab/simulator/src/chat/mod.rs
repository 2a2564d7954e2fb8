//! Chat replicas in virtual time: the time to first token under the dispatcher, and under what is used today.
//!
//! A replica is the state machine of `parm_workload::chat`. A query is a request until its first token, as in
//! `parm serve --upstream`: then its place at the replica is free for the next, and a copy elsewhere is cancelled.

mod engine;

use std::time::Duration;

use parm_dispatch::PoolSettings;
use parm_workload::chat::{Costs, Timed};
use parm_workload::{Error, Faults};

/// The choice of a replica for a request.
#[derive(Clone, Debug)]
pub enum Balancing {
    /// In turn.
    RoundRobin,
    /// The replica with the fewest streams.
    LeastRequests,
    /// The same, and a copy at another replica after a fixed time without a token, for at most this share of the requests.
    FixedHedge(Duration, f64),
    /// The dispatcher, with so many requests before their first token at a replica.
    Dispatched(Box<PoolSettings>, u16),
}

/// A replay of a trace.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The requests, in the order of their times.
    pub requests: Vec<Timed>,
    /// Requests at the beginning that do not count.
    pub warm_up: usize,
    /// Number of replicas.
    pub replicas: u32,
    /// Times of an iteration.
    pub costs: Costs,
    /// Faults of the replicas.
    pub faults: Faults,
    /// Seed of the faults and of the dispatcher.
    pub seed: u64,
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct FirstTokens {
    /// Seconds to the first token of each counted request that got one, in order of size.
    pub seconds: Vec<f64>,
    /// Requests without a token.
    pub failed: u64,
    /// Tokens of prompts that copies read, as a share of all others.
    pub extra: f64,
}

impl Replay {
    /// Replays the trace.
    pub fn run(&self, balancing: &Balancing) -> Result<FirstTokens, Error> {
        engine::ReplayEngine::new(self, balancing)?.run()
    }
}

impl FirstTokens {
    /// A quantile in seconds; a failed request counts as infinite.
    pub fn quantile(&self, share: f64) -> f64 {
        let all = self.seconds.len() + self.failed as usize;
        let at = ((all as f64 * share).ceil() as usize).clamp(1, all.max(1)) - 1;
        self.seconds.get(at).copied().unwrap_or(f64::INFINITY)
    }
}
