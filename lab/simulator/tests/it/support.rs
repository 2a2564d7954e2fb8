//! Base runs that tests vary.

use std::time::Duration;

use parm_settings::{BatchSize, PolicyKind, PoolSettings};
use parm_simulator::{Answered, Outcome, Quiet, Run, Tally, Witness};
use parm_workload::Faults;
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;

pub(crate) const SERVICE: f64 = 0.020;

/// Poisson arrivals at `instances` instances of 20 ms without redundancy, at this share of their capacity.
pub(crate) fn run(instances: u32, load: f64) -> Run {
    let mut settings = PoolSettings { policy: PolicyKind::Equal, ..PoolSettings::default() };
    settings.batch.max_size = BatchSize::ONE;
    settings.queue_limit = std::num::NonZeroU32::new(1 << 20).unwrap();
    let arrivals = Arrivals::Poisson { rate: load * f64::from(instances) / SERVICE };
    Run {
        queries: 170_000,
        warm_up: 20_000,
        service: Service { time_ms: Distribution::Constant { value: SERVICE * 1e3 }, ..Service::default() },
        deadline: Duration::from_secs(60),
        ..Run::new(arrivals, Faults::default(), instances, settings)
    }
}

pub(crate) fn exponential() -> Service {
    let time_ms = Distribution::Exponential { mean: SERVICE * 1e3, shift: 0.0 };
    Service { time_ms, ..Service::default() }
}

pub(crate) fn simulate(run: &Run) -> Tally {
    eprintln!("seed {}", run.seed);
    run.simulate(&Quiet).unwrap()
}

/// The latencies of a run in which every query is answered.
pub(crate) struct Tail {
    /// Milliseconds, sorted.
    latencies: Vec<f64>,
    /// Whether each answer was approximate, in the order of the answers.
    pub(crate) approximate: Vec<bool>,
    pub(crate) tally: Tally,
}

#[derive(Default)]
struct Answers(Vec<f64>, Vec<bool>);

impl Witness for Answers {
    fn answered(&mut self, answered: Answered) {
        assert_ne!(answered.outcome, Outcome::Failed);
        self.0.push(answered.latency as f64 / 1e6);
        self.1.push(answered.outcome.is_approximate());
    }
}

impl Tail {
    pub(crate) fn of(run: &Run) -> Self {
        let mut seen = Answers::default();
        let tally = run.watched(&Quiet, &mut seen).unwrap();
        let Answers(mut latencies, approximate) = seen;
        latencies.sort_by(f64::total_cmp);
        Self { latencies, approximate, tally }
    }

    pub(crate) fn quantile(&self, share: f64) -> f64 {
        self.latencies[(self.latencies.len() as f64 * share) as usize]
    }

    /// From the median to the 99.9th percentile.
    pub(crate) fn gap(&self) -> f64 {
        self.quantile(0.999) - self.quantile(0.5)
    }

    /// The share of approximate answers.
    pub(crate) fn share(&self) -> f64 {
        self.approximate.iter().filter(|approximate| **approximate).count() as f64
            / self.approximate.len() as f64
    }
}
