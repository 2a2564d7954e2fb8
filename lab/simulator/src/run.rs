//! A run: a policy on a cluster, under a load and faults.

use std::time::Duration;

use parm_settings::{Cost, PoolSettings};
use parm_workload::Faults;
use parm_workload::arrivals::Arrivals;
use parm_workload::service::Service;

use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::{Error, Progress, Tally, Witness};

/// Everything that determines a run: equal runs have equal results.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Seed of arrivals, service times and faults.
    pub seed: u64,
    /// Queries that arrive.
    pub queries: u64,
    /// The first queries, which are not counted.
    pub warm_up: u64,
    /// When they arrive.
    pub arrivals: Arrivals,
    /// The faults.
    pub faults: Faults,
    /// The service times of instances.
    pub service: Service,
    /// The backup model's time as a share of the deployed model's.
    pub backup_share: f64,
    /// A parity model's time for a group, as the same share.
    pub parity_share: f64,
    /// The stand-in's cost and quality.
    pub stand_in: StandIn,
    /// The instances.
    pub shape: Shape,
    /// The frontends, and the network to the instances.
    pub fleet: Fleet,
    /// The policy and all other settings of the dispatcher.
    pub settings: PoolSettings,
    /// How long a query may wait for its answer.
    pub deadline: Duration,
    /// How batches treat queries of unequal lengths.
    pub lengths: Lengths,
    /// Time to encode a group, off the dispatch path.
    pub encode: Duration,
    /// Time to decode a slot.
    pub decode: Duration,
}

/// How batches treat queries of unequal lengths. A batch takes as long as its longest query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lengths {
    /// All share batches: the dispatcher knows no lengths.
    #[default]
    Mixed,
    /// Only equal lengths share a batch, as for a model without padding.
    Equal,
    /// Lengths share a batch if the padding costs less than a run, as for a model with padding.
    Padded,
}

/// A stand-in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StandIn {
    /// Time of its jobs, as a share of a query's time on the deployed model.
    pub cost: Cost,
    /// Share of right predictions that it agrees with.
    pub agreement: f64,
}

/// A quarter of a query's time for a row, and agreement with 97 of 100 predictions.
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
    /// Jobs that an instance holds: one runs, the others wait there.
    pub slots: u16,
}

/// The frontends, and the network between them and the instances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fleet {
    /// Frontends; each query arrives at a random one.
    pub frontends: u32,
    /// Whether the instances give tokens.
    pub tokens: bool,
    /// Without tokens: the shortest time between two reports of a frontend to its neighbours.
    pub neighbours: Option<Duration>,
    /// Time of a message in one direction.
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

    /// The same, observed by a witness.
    pub fn watched(&self, progress: &dyn Progress, witness: &mut dyn Witness) -> Result<Tally, Error> {
        Engine::watched(self, witness)?.run(progress)
    }
}
