//! One run: a policy on a cluster, under a load and faults.

use std::time::Duration;

use parm_dispatch::{Cost, PoolSettings};
use parm_workload::Faults;
use parm_workload::arrivals::Arrivals;
use parm_workload::service::Service;

use crate::engine::Engine;
use crate::{Error, Progress, Tally, Witness};

/// Everything that determines a run: the same one always has the same result.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Seed of arrivals, service times and faults.
    pub seed: u64,
    /// Queries that arrive.
    pub queries: u64,
    /// How many of them, at the start, are not counted.
    pub warm_up: u64,
    /// When they arrive.
    pub arrivals: Arrivals,
    /// What goes wrong.
    pub faults: Faults,
    /// How long instances take.
    pub service: Service,
    /// What the backup model takes, as a share of that.
    pub backup_share: f64,
    /// What a parity model takes for a group, likewise.
    pub parity_share: f64,
    /// What the stand-in costs, and how good it is.
    pub stand_in: StandIn,
    /// The instances.
    pub shape: Shape,
    /// The frontends, and what lies between them and the instances.
    pub fleet: Fleet,
    /// The policy and everything else that the dispatcher is told.
    pub settings: PoolSettings,
    /// How long a query is worth waiting for.
    pub deadline: Duration,
    /// What encoding a group takes, off the dispatch path.
    pub encode: Duration,
    /// What decoding a slot takes.
    pub decode: Duration,
}

/// A stand-in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StandIn {
    /// What its jobs take, as a share of a query's time on the deployed model.
    pub cost: Cost,
    /// Share of right predictions that it agrees with.
    pub agreement: f64,
}

/// A quarter of a query for a row, and right about 97 of 100.
impl Default for StandIn {
    fn default() -> Self {
        Self { cost: Cost::linear(0.25), agreement: 0.97 }
    }
}

/// The instances of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// All of them.
    pub instances: u32,
    /// The last this many serve parity models only; the others serve everything.
    pub parity_only: u32,
    /// Jobs that an instance may hold: one runs, the others wait there.
    pub slots: u16,
}

/// The frontends, and the network between them and the instances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fleet {
    /// Frontends; each query arrives at one by chance.
    pub frontends: u32,
    /// The instances give tokens.
    pub tokens: bool,
    /// Where there are no tokens frontends tell each other what they hold, so often at most.
    pub neighbours: Option<Duration>,
    /// What a message takes each way.
    pub delay: Duration,
    /// Share of the messages about tokens that are lost.
    pub loss: f64,
}

/// One frontend, next to its instances.
impl Default for Fleet {
    fn default() -> Self {
        Self { frontends: 1, tokens: false, neighbours: None, delay: Duration::ZERO, loss: 0.0 }
    }
}

impl Run {
    /// Simulates the run.
    pub fn simulate(&self, progress: &dyn Progress) -> Result<Tally, Error> {
        Engine::new(self)?.run(progress)
    }

    /// The same, with somebody who watches.
    pub fn watched(&self, progress: &dyn Progress, witness: &mut dyn Witness) -> Result<Tally, Error> {
        Engine::watched(self, witness)?.run(progress)
    }
}
