//! Readings of pools and instances, for metrics and the console.

use std::time::Duration;

use super::{Cost, Counters, Reason};

/// The state of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolReading {
    /// The part that metrics show too.
    pub status: PoolStatus,
    /// Instances that would be usable if none was ejected.
    pub members: u32,
    /// Slots of the usable ones.
    pub slots: u32,
    /// Slots kept busy by queries.
    pub busy: f64,
    /// Median and high quantile of the deployed model's jobs; `None` while too few are known.
    pub service: Option<[Duration; 2]>,
    /// The age at which hedging policies treat a job as late.
    pub late_after: Option<Duration>,
    /// Retries that the budget allows now, and at most.
    pub retries: (f64, f64),
    /// Hedges that the budget allows now, and at most.
    pub hedges: (f64, f64),
    /// Stand-ins of late queries that the budget allows now, and at most.
    pub stand_ins: Option<(f64, f64)>,
    /// For stand-ins: approximate answers among the latest, their limit, and the size of the window.
    pub approximate: Option<[u32; 3]>,
}

/// The coding groups of a pool. Reading them resets `made`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupsReading {
    /// Those that take members.
    pub open: Vec<OpenGroup>,
    /// The number of groups encoded since the last reading, by size.
    pub made: Vec<(u8, u32)>,
}

/// A group that takes members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenGroup {
    /// Members that it has room for.
    pub k: u8,
    /// Members so far.
    pub members: u8,
    /// Time since the first member.
    pub age: Duration,
}

/// The state of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InstanceReading {
    /// Whether it takes work of any model.
    pub in_service: bool,
    /// The reason why it does not, or not of every model.
    pub out_for: Option<Reason>,
    /// Time until its next probe.
    pub probe_in: Option<Duration>,
    /// How many times as long as on the median instance a run takes, of the model that differs most; `None` if it is
    /// as fast as the others.
    pub slower: Option<f64>,
    /// Its compared answers, and those that agreed; old ones fade.
    pub compared: Option<(f64, f64)>,
}

/// The state of a pool, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolStatus {
    /// Queries that wait for an instance and were never tried.
    pub queued: u32,
    /// Queries without an answer.
    pub unanswered: u32,
    /// Jobs that run.
    pub running: u32,
    /// Instances that take the deployed model's jobs: neither draining nor ejected.
    pub usable_instances: u32,
    /// The cost of its stand-in at the speed of the deployed model's instances, as far as known.
    pub stand_in_cost: Option<Cost>,
    /// The same on instances without the deployed model, which may be faster or slower; `None` without such instances.
    pub stand_in_cost_apart: Option<Cost>,
    /// Share of the latest predictions that their stand-ins agreed with.
    pub agreement: Option<f64>,
    /// The agreement is below the floor: clients receive no stand-in's answer.
    pub withheld: bool,
    /// Stand-ins answer because no instance with the deployed model does.
    pub in_outage: bool,
    /// The latency of its predictions, once enough are known.
    pub latency: Option<LatencyReading>,
    /// Events so far.
    pub counters: Counters,
}

/// The tail of a pool's predictions next to the objective that limits automatic batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyReading {
    /// The 99th percentile of the time from a query's arrival to its prediction.
    pub p99: Duration,
    /// The time that queries usually have until their deadlines.
    pub objective: Duration,
}

impl LatencyReading {
    /// The p99 as a share of the objective.
    pub fn used(&self) -> f64 {
        self.p99.as_secs_f64() / self.objective.as_secs_f64().max(1e-9)
    }
}

/// Sizes of a dispatcher's state.
#[allow(missing_docs)] // the names say it
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub queries: usize,
    pub jobs: usize,
    pub groups: usize,
    pub instances: usize,
    pub pools: usize,
}
