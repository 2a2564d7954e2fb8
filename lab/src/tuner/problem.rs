//! The tuning problem: the expected load and faults of a cluster, the objective, the limits, and the value of answers: the accuracy
//! of each kind of answer, as in a bundle's manifest.

use std::time::Duration;

use parm_encoder::{Kind, Needs};
use parm_parity_models::bundle::Manifest;
use parm_settings::{Cost, PoolSettings};
use parm_workload::Faults;
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use serde::Serialize;

use crate::Error;
use crate::simulator::{Answered, Outcome, Run};

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

/// Accuracies, as fractions of 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quality {
    /// Accuracy of predictions.
    pub available: f64,
    /// Accuracy of the default answer.
    pub default: f64,
    /// The backup model's time as a share of the deployed model's, and its accuracy.
    pub backup: Option<(f64, f64)>,
    /// The stand-in, if its cost and accuracy are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stand_in: Option<StandInWorth>,
    /// A parity model's time for a group, as a share of the deployed model's time for a query.
    pub parity_share: f64,
    /// The codes with a parity model, and those that need none.
    pub codes: Vec<Coded>,
}

/// A code and how good its reconstructions are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Coded {
    /// Queries per group.
    pub k: u8,
    /// Parities per group.
    pub r: u8,
    /// The code, if simulations need to know it: one that can restore other losses than any `r`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Kind>,
    /// Accuracy of reconstructions (A_d).
    pub degraded: f64,
}

/// The cost and the value of a stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StandInWorth {
    /// Time of jobs of 1, 2, 4 and 8 rows, as shares of a query's on the deployed model.
    pub cost: [f64; 4],
    /// Share of the predictions that it agrees with.
    pub agreement: f64,
    /// Accuracy of its answers.
    pub accuracy: f64,
}

/// The known facts about a stand-in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StandInFacts {
    /// The time of its jobs.
    pub cost: Option<Cost>,
    /// Share of the predictions that it agrees with.
    pub agreement: Option<f64>,
    /// Accuracy of its answers.
    pub accuracy: Option<f64>,
}

impl StandInFacts {
    /// Reads the facts about the cheapest stand-in of a bundle.
    pub fn of(manifest: &Manifest) -> Self {
        let Some(stand_in) = manifest.cheapest() else { return Self::default() };
        let costs = stand_in.costs.iter().map(|cost| cost.rows);
        Self {
            cost: costs.min_by(|a, b| a[0].total_cmp(&b[0])).map(|rows| Cost { rows }),
            agreement: stand_in.agreement,
            accuracy: stand_in.accuracy.as_ref().map(|accuracy| accuracy.stand_in),
        }
    }

    /// Returns its value relative to a model of this accuracy, if enough is known. Each of agreement and accuracy bounds
    /// the other from below: answers that differ are assumed to be wrong.
    pub fn worth(&self, available: f64) -> Option<StandInWorth> {
        let accuracy = self.accuracy.or(self.agreement.map(|agreement| agreement * available))?;
        let agreement = self.agreement.unwrap_or((accuracy / available.max(1e-9)).min(1.0));
        Some(StandInWorth { cost: self.cost?.rows, agreement, accuracy })
    }
}

/// Without known accuracies every exact answer counts as one.
impl Default for Quality {
    fn default() -> Self {
        Self {
            available: 1.0,
            default: 0.0,
            backup: None,
            stand_in: None,
            parity_share: 1.0,
            codes: Vec::new(),
        }
    }
}

impl Quality {
    /// Reads the measured values of a bundle. Codes without a measurement are left out: their value is unknown.
    pub fn of(manifest: &Manifest) -> Result<Self, Error> {
        let known = manifest.cheapest().and_then(|stand_in| stand_in.accuracy.as_ref());
        let measured: Vec<_> =
            manifest.parities.iter().filter_map(|p| Some((p, p.accuracy.as_ref()?))).collect();
        let Some((_, first)) = measured.first() else {
            let available = known.map(|accuracy| accuracy.deployed).ok_or(Error::NotMeasured)?;
            return Ok(Self { available, ..Self::default() });
        };
        let codes = measured.iter().filter_map(|(parity, accuracy)| {
            let (k, r) = (u8::try_from(parity.code.k).ok()?, u8::try_from(parity.code.r).ok()?);
            let code = (parity.code.recovery().needs != Needs::AsManyAsMissing).then_some(parity.code.kind);
            Some(Coded { k, r, code, degraded: accuracy.degraded })
        });
        let backup = measured
            .iter()
            .find_map(|(parity, accuracy)| Some((1.0 / parity.code.k as f64, accuracy.backup?)));
        let mut codes: Vec<Coded> = codes.filter(|coded| coded.k > 1).collect();
        // A server uses the more accurate of two codes with the same numbers.
        codes.sort_by(|a, b| (a.k, a.r).cmp(&(b.k, b.r)).then(b.degraded.total_cmp(&a.degraded)));
        codes.dedup_by_key(|coded| (coded.k, coded.r));
        let default = first.constant_answer.unwrap_or(0.0);
        Ok(Self { available: first.available, default, backup, codes, ..Self::default() })
    }

    /// Rejects invalid accuracies.
    pub fn check(&self) -> Result<(), Error> {
        let degraded = self.codes.iter().map(|coded| coded.degraded);
        let stand_in = self.stand_in.iter().flat_map(|stand_in| [stand_in.agreement, stand_in.accuracy]);
        let all = [self.available, self.default].into_iter().chain(degraded).chain(self.backup.map(|b| b.1));
        let all = all.chain(stand_in);
        let wrong = all.into_iter().find(|value| !(0.0..=1.0).contains(value));
        wrong.map_or(Ok(()), |value| Err(Error::NoAccuracy { value }))
    }

    /// Returns the value of an answer.
    pub fn worth(&self, answer: &Answered, r: u8) -> f64 {
        match answer.outcome {
            _ if answer.wrong => 0.0,
            Outcome::Exact | Outcome::Hedged => self.available,
            Outcome::Reconstructed => self.degraded(answer.members, r),
            Outcome::StandIn => self.stand_in.map_or(0.0, |stand_in| stand_in.accuracy),
            Outcome::Backup => self.backup.map_or(0.0, |(_, accuracy)| accuracy),
            Outcome::Default => self.default,
            Outcome::Failed | Outcome::Dropped => 0.0,
        }
    }

    /// Returns the accuracy of a reconstruction from a group of this many: a partial group used the code of a larger one.
    fn degraded(&self, members: u8, r: u8) -> f64 {
        let fits = |coded: &&Coded| coded.k >= members && coded.r == r;
        let smallest = self.codes.iter().filter(fits).min_by_key(|coded| coded.k);
        smallest.or(self.codes.last()).map_or(0.0, |coded| coded.degraded)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use parm_workload::Time;
    use parm_workload::{Pattern, Scenario};

    use super::*;

    /// The paper's GPU cluster: 18 instances of 20 ms, 270 queries per second, four concurrent transfers between them,
    /// the accuracies of CIFAR-10.
    pub(crate) fn paper() -> Problem {
        let coded = |(k, degraded)| Coded { k, r: 1, code: None, degraded };
        Problem {
            slo: Duration::from_millis(40),
            arrivals: Pattern::Poisson.at(270.0),
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
        let crowded = Problem { arrivals: Pattern::Poisson.at(1000.0), ..paper() };
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

    const CODES: [(u8, u8, f64); 3] = [(2, 1, 0.9), (4, 1, 0.8), (4, 2, 0.7)];

    fn quality() -> Quality {
        let coded = |(k, r, degraded)| Coded { k, r, code: None, degraded };
        Quality { available: 0.95, codes: CODES.map(coded).to_vec(), ..Quality::default() }
    }

    fn answered(outcome: Outcome, members: u8) -> Answered {
        let arrived = Time::ZERO;
        Answered { number: 0, counted: true, arrived, latency: 1, outcome, members, wrong: false }
    }

    fn worth(outcome: Outcome, members: u8, r: u8) -> f64 {
        quality().worth(&answered(outcome, members), r)
    }

    #[test]
    fn value_of_an_answer_is_the_accuracy_of_its_kind() {
        assert_eq!(worth(Outcome::Exact, 0, 1), 0.95);
        assert_eq!(worth(Outcome::Hedged, 0, 1), 0.95);
        assert_eq!(worth(Outcome::Failed, 0, 1), 0.0);
        assert_eq!([2, 3, 4].map(|members| worth(Outcome::Reconstructed, members, 1)), [0.9, 0.8, 0.8]);
        assert_eq!(worth(Outcome::Reconstructed, 3, 2), 0.7);
        let wrong = Answered { wrong: true, ..answered(Outcome::Exact, 0) };
        assert_eq!(quality().worth(&wrong, 1), 0.0);
    }

    #[test]
    fn stand_in_needs_its_cost_and_one_quality_figure() {
        let cost = Some(Cost::linear(0.2));
        assert_eq!(StandInFacts { cost, ..StandInFacts::default() }.worth(0.9), None);
        assert_eq!(StandInFacts { agreement: Some(0.9), ..StandInFacts::default() }.worth(0.9), None);
        let of = |agreement, accuracy| {
            let worth = StandInFacts { cost, agreement, accuracy }.worth(0.9).unwrap();
            [worth.cost[1], worth.agreement, worth.accuracy].map(|value| (value * 1e3).round() / 1e3)
        };
        assert_eq!(of(Some(0.9), None), [0.4, 0.9, 0.81], "differing answers are assumed to be wrong");
        assert_eq!(of(None, Some(0.855)), [0.4, 0.95, 0.855]);
        assert_eq!(of(Some(0.94), Some(0.88)), [0.4, 0.94, 0.88]);
        let mut quality = quality();
        quality.stand_in = StandInFacts { cost, agreement: Some(0.9), accuracy: Some(0.88) }.worth(0.9);
        let given = answered(Outcome::StandIn, 0);
        assert_eq!(quality.worth(&given, 1), 0.88);
    }

    #[test]
    fn invalid_accuracy_is_rejected() {
        let quality = Quality { available: 93.0, ..Quality::default() };
        assert_eq!(quality.check(), Err(Error::NoAccuracy { value: 93.0 }));
    }
}
