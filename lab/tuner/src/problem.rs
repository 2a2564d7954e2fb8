//! What a cluster is to expect, and what is wanted of it.

use std::time::Duration;

use parm_dispatch::{Cost, PoolSettings};
use parm_simulator::{Run, Shape, StandIn};
use parm_workload::Faults;
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use serde::Serialize;

use crate::{Error, Quality};

/// What a cluster is to expect, and what is wanted of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// An answer that is later than this is worth nothing.
    pub slo: Duration,
    /// When queries arrive.
    pub arrivals: Arrivals,
    /// How long instances take.
    pub service: Service,
    /// What goes wrong.
    pub faults: Faults,
    /// Instances that there are.
    pub instances: u32,
    /// Jobs that an instance may hold.
    pub slots: u16,
    /// Largest batch that the model and its instances take.
    pub max_batch: u16,
    /// How long clients wait.
    pub deadline: Duration,
    /// What answers are worth.
    pub quality: Quality,
    /// What is not allowed.
    pub limits: Limits,
    /// What is wanted.
    pub objective: Objective,
}

/// What is not allowed. What is left out is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Limits {
    /// Longest p99.9 in milliseconds.
    pub p999_ms: Option<f64>,
    /// Most extra executions, as a share of the necessary ones.
    pub extra: Option<f64>,
    /// Least accuracy of all answers.
    pub accuracy: Option<f64>,
}

/// What is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Answers within the SLO, each counted at its accuracy. What is nearly equal is told apart by p99.9 and cost.
    #[default]
    Goodput,
    /// A short p99.9.
    Tail,
    /// A short way from p50 to p99.9: the paper's measure.
    Gap,
}

/// Seconds that encoding a group and decoding a slot take off the dispatch path: the paper's medians for two images.
const ENCODE: Duration = Duration::from_micros(93);
const DECODE: Duration = Duration::from_micros(8);

/// Values that a measured sample needs before its own p99.9 is more than a guess: ten beyond it.
const ENOUGH: usize = 10_000;

impl Problem {
    /// Refuses what cannot be simulated.
    pub fn check(&self) -> Result<(), Error> {
        self.service.check()?;
        self.faults.check(self.instances.max(1))?;
        self.quality.check()?;
        self.arrivals.schedule(0)?;
        if self.slo.is_zero() {
            return Err(Error::NoSlo);
        }
        if self.instances == 0 {
            return Err(Error::NoInstances);
        }
        if self.load() >= 1.0 {
            let (rate, can) = (self.arrivals.rate(), self.capacity());
            return Err(Error::Overload { rate, can, instances: self.instances });
        }
        Ok(())
    }

    /// Queries per second that the instances can do when nothing goes wrong, in the largest batches.
    pub fn capacity(&self) -> f64 {
        let rows = f64::from(self.max_batch.max(1));
        let batch = self.service.mean_seconds() * (1.0 + self.service.row_share * (rows - 1.0));
        f64::from(self.instances) * rows / batch
    }

    /// The share of that which arrives.
    pub fn load(&self) -> f64 {
        self.arrivals.rate() / self.capacity()
    }

    /// Queries of a run of this many: a trace may have fewer.
    pub fn queries(&self, wanted: u64) -> u64 {
        match &self.arrivals {
            Arrivals::Trace { seconds } => wanted.min(seconds.len() as u64),
            _ => wanted,
        }
    }

    /// Whether the service times are measured, and too few for what is rarer than one in a thousand.
    pub fn sample_is_small(&self) -> Option<usize> {
        match &self.service.time_ms {
            Distribution::Sample { values } if values.len() < ENOUGH => Some(values.len()),
            _ => None,
        }
    }

    fn stand_in(&self) -> StandIn {
        self.quality.stand_in.map_or_else(StandIn::default, |known| StandIn {
            cost: Cost { rows: known.cost },
            agreement: known.agreement,
        })
    }

    /// The run of some settings. Runs of one seed face the same arrivals, service times and faults.
    pub fn run(&self, settings: PoolSettings, seed: u64, queries: u64) -> Run {
        let queries = self.queries(queries);
        Run {
            seed,
            queries,
            warm_up: queries / 10,
            arrivals: self.arrivals.clone(),
            faults: self.faults.clone(),
            service: self.service.clone(),
            backup_share: self.quality.backup.map_or(1.0, |(share, _)| share),
            parity_share: self.quality.parity_share,
            stand_in: self.stand_in(),
            shape: Shape { instances: self.instances, parity_only: 0, slots: self.slots },
            fleet: parm_simulator::Fleet::default(),
            settings,
            deadline: self.deadline,
            encode: ENCODE,
            decode: DECODE,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use parm_workload::Scenario;

    use super::*;
    use crate::Coded;

    /// The paper's GPU cluster: 18 instances of 20 ms, 270 queries per second, four transfers at a time between them,
    /// the accuracies of CIFAR-10.
    pub(crate) fn paper() -> Problem {
        let coded = |(k, degraded)| Coded { k, r: 1, code: None, degraded };
        Problem {
            slo: Duration::from_millis(40),
            arrivals: Arrivals::Poisson { rate: 270.0 },
            service: Service::default(),
            faults: Scenario::named("shuffles").expect("it is ready-made").faults,
            instances: 18,
            slots: 1,
            max_batch: 1,
            deadline: Duration::from_secs(10),
            quality: Quality {
                available: 0.935,
                default: 0.1,
                backup: None,
                stand_in: None,
                parity_share: 1.0,
                codes: [(2, 0.874), (3, 0.7385), (4, 0.5291)].map(coded).to_vec(),
            },
            limits: Limits::default(),
            objective: Objective::Gap,
        }
    }

    #[test]
    fn what_cannot_be_simulated_is_refused_with_what_to_do() {
        let refused =
            |problem: Problem| problem.check().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused(Problem { slo: Duration::ZERO, ..paper() }).contains("SLO"));
        assert!(refused(Problem { instances: 0, ..paper() }).contains("instances"));
        let crowded = Problem { arrivals: Arrivals::Poisson { rate: 1000.0 }, ..paper() };
        assert!(refused(crowded).contains("add instances"));
        assert_eq!(paper().check(), Ok(()));
    }

    #[test]
    fn capacity_counts_the_gain_of_batches() {
        let service = Service { time_ms: Distribution::Constant { value: 20.0 }, row_share: 0.25 };
        let batched = Problem { service, max_batch: 5, ..paper() };
        assert_eq!(batched.capacity(), 18.0 * 5.0 / 0.040);
        assert!((batched.load() - 270.0 / 2250.0).abs() < 1e-12);
    }
}
