//! Base runs that tests vary.

use std::time::Duration;

use parm_settings::{BatchSize, PolicyKind, PoolSettings};
use parm_simulator::{Quiet, Run, Tally};
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
