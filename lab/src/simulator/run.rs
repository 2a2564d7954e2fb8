//! A run: a policy on a cluster, under a load and faults.

use std::time::Duration;

use parm_settings::{Cost, PoolSettings};
use parm_workload::Faults;
use parm_workload::arrivals::Arrivals;
use parm_workload::service::Service;

use crate::Error;
use crate::simulator::simulation::{self, Simulation};
use crate::simulator::{Answered, Lengths, Progress, Tally, rivals};
use crate::world::World;
use crate::world::rivals::{Rival, Simulated};

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
    /// The time of a stand-in's jobs, as a share of a query's time on the deployed model.
    pub stand_in: Cost,
    /// The instances. The policy keeps as many of the last ones for parities or backups as it needs.
    pub instances: u32,
    /// Jobs that an instance holds: one runs, the others wait there.
    pub slots: u16,
    /// The policy and all other settings of the dispatcher.
    pub settings: PoolSettings,
    /// What distributes the queries instead of parm.
    pub rival: Option<Rival>,
    /// Frontends of parm, or clients of a rival. Each gets queries at random.
    pub frontends: u32,
    /// What is between them and the instances.
    pub simulated: Simulated,
    /// How long a query may wait for its answer.
    pub deadline: Duration,
    /// How batches treat queries of unequal lengths.
    pub lengths: Lengths,
}

impl Run {
    /// A run of a hundred thousand queries, whose models take as long as the paper's where they do not say otherwise.
    pub fn new(arrivals: Arrivals, faults: Faults, instances: u32, settings: PoolSettings) -> Self {
        Self {
            seed: 1,
            queries: 100_000,
            warm_up: 0,
            arrivals,
            faults,
            service: Service::default(),
            backup_share: 0.5,
            parity_share: 1.0,
            stand_in: Cost::linear(0.25),
            instances,
            slots: 1,
            settings,
            rival: None,
            frontends: 1,
            simulated: Simulated::default(),
            deadline: Duration::from_secs(10),
            lengths: Lengths::default(),
        }
    }

    /// Simulates the run.
    pub fn simulate(&self, progress: &dyn Progress) -> Result<Tally, Error> {
        self.play(progress, None)
    }

    /// The same, with the end of each query.
    pub fn watched(&self, progress: &dyn Progress, sees: &mut dyn FnMut(Answered)) -> Result<Tally, Error> {
        self.play(progress, Some(sees))
    }

    fn play<'a>(
        &'a self,
        progress: &dyn Progress,
        watcher: Option<&'a mut dyn FnMut(Answered)>,
    ) -> Result<Tally, Error> {
        if self.warm_up >= self.queries {
            return Err(Error::AllWarmUp { warm_up: self.warm_up, queries: self.queries });
        }
        if self.has_clients() {
            return rivals::run(self, progress, watcher);
        }
        Simulation::new(self, watcher)?.run(progress)
    }

    /// The world of the run at its beginning, to look at what happens there.
    pub fn world(&self) -> Result<World, Error> {
        simulation::world(self)
    }
}
