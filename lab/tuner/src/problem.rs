//! The tuning problem: the expected load and faults of a cluster, the objective and the limits.

use std::time::Duration;

use parm_settings::{Cost, PoolSettings};
use parm_simulator::Run;
use parm_workload::Faults;
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use serde::Serialize;

use crate::{Error, Quality};

/// The expected load and faults of a cluster, the objective and the limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// A later answer has no value.
    pub slo: Duration,
    /// The arrivals of queries.
    pub arrivals: Arrivals,
    /// The service times.
    pub service: Service,
    /// The faults.
    pub faults: Faults,
    /// Number of instances.
    pub instances: u32,
    /// Largest batch that the model and its instances take.
    pub max_batch: u16,
    /// Timeout of clients.
    pub deadline: Duration,
    /// The value of answers.
    pub quality: Quality,
    /// The limits.
    pub limits: Limits,
    /// The objective.
    pub objective: Objective,
}

/// The limits of a solution. An absent one does not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Limits {
    /// Longest p99.9 in milliseconds.
    pub p999_ms: Option<f64>,
    /// Most extra executions, as a share of the necessary ones.
    pub extra: Option<f64>,
    /// Least accuracy of all answers.
    pub accuracy: Option<f64>,
}

/// The objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Answers within the SLO, each counted at its accuracy. Candidates with nearly equal values differ by p99.9 and
    /// cost.
    #[default]
    Goodput,
    /// A short p99.9.
    Tail,
    /// A small gap from p50 to p99.9: the paper's measure.
    Gap,
}

/// Fewest values of a measured sample for its own p99.9: ten lie beyond it.
const ENOUGH: usize = 10_000;

impl Problem {
    /// Rejects a problem that cannot be simulated.
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

    /// Returns the queries per second that the instances can serve without faults, in the largest batches.
    pub fn capacity(&self) -> f64 {
        let rows = self.max_batch.max(1);
        let batch = self.service.mean_seconds() * self.service.rows(rows.into());
        f64::from(self.instances) * f64::from(rows) / batch
    }

    /// Returns the arrival rate as a share of the capacity.
    pub fn load(&self) -> f64 {
        self.arrivals.rate() / self.capacity()
    }

    /// Returns the queries of a run of `wanted` queries: a trace may have fewer.
    pub fn queries(&self, wanted: u64) -> u64 {
        match &self.arrivals {
            Arrivals::Trace { seconds } => wanted.min(seconds.len() as u64),
            _ => wanted,
        }
    }

    /// Returns the number of measured service times if there are too few for p99.9.
    pub fn sample_is_small(&self) -> Option<usize> {
        match &self.service.time_ms {
            Distribution::Sample { values } if values.len() < ENOUGH => Some(values.len()),
            _ => None,
        }
    }

    /// Returns the run of some settings. Runs of one seed have the same arrivals, service times and faults.
    pub fn run(&self, settings: PoolSettings, seed: u64, queries: u64) -> Run {
        let queries = self.queries(queries);
        let run = Run::new(self.arrivals.clone(), self.faults.clone(), self.instances, settings);
        Run {
            seed,
            queries,
            warm_up: queries / 10,
            service: self.service.clone(),
            backup_share: self.quality.backup.map_or(1.0, |(share, _)| share),
            parity_share: self.quality.parity_share,
            stand_in: self.quality.stand_in.map_or(run.stand_in, |known| Cost { rows: known.cost }),
            deadline: self.deadline,
            ..run
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use parm_workload::Scenario;

    use super::*;
    use crate::Coded;

    /// The paper's GPU cluster: 18 instances of 20 ms, 270 queries per second, four concurrent transfers between them,
    /// the accuracies of CIFAR-10.
    pub(crate) fn paper() -> Problem {
        let coded = |(k, degraded)| Coded { k, r: 1, code: None, degraded };
        Problem {
            slo: Duration::from_millis(40),
            arrivals: Arrivals::Poisson { rate: 270.0 },
            service: Service::default(),
            faults: Scenario::named("shuffles").expect("the scenario is predefined").faults,
            instances: 18,
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
    fn invalid_problem_error_says_what_to_do() {
        let refused =
            |problem: Problem| problem.check().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused(Problem { slo: Duration::ZERO, ..paper() }).contains("SLO"));
        assert!(refused(Problem { instances: 0, ..paper() }).contains("instances"));
        let crowded = Problem { arrivals: Arrivals::Poisson { rate: 1000.0 }, ..paper() };
        assert!(refused(crowded).contains("add instances"));
        assert_eq!(paper().check(), Ok(()));
    }

    #[test]
    fn capacity_includes_the_gain_of_batches() {
        let service = Service {
            time_ms: Distribution::Constant { value: 20.0 },
            row_share: 0.25,
            ..Service::default()
        };
        let batched = Problem { service, max_batch: 5, ..paper() };
        assert_eq!(batched.capacity(), 18.0 * 5.0 / 0.040);
        assert!((batched.load() - 270.0 / 2250.0).abs() < 1e-12);
    }
}
