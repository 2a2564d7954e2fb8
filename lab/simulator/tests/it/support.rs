//! Base runs that tests vary.

use std::time::Duration;

use parm_settings::{BatchSize, PolicyKind, PoolSettings};
use parm_simulator::{Lengths, Quiet, Run, Shape, Tally};
use parm_workload::Faults;
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;

pub(crate) const SERVICE: f64 = 0.020;

/// Poisson arrivals at `instances` instances of 20 ms without redundancy or ejection, at this share of their capacity.
pub(crate) fn run(instances: u32, load: f64) -> Run {
    let mut settings = PoolSettings { policy: PolicyKind::Equal, ..PoolSettings::default() };
    settings.ejection.enabled = false;
    settings.batch.max_size = BatchSize::ONE;
    settings.queue_limit = std::num::NonZeroU32::new(1 << 20).unwrap();
    Run {
        seed: 1,
        queries: 170_000,
        warm_up: 20_000,
        arrivals: Arrivals::Poisson { rate: load * f64::from(instances) / SERVICE },
        faults: Faults::default(),
        service: Service { time_ms: Distribution::Constant { value: SERVICE * 1e3 }, ..Service::default() },
        backup_share: 0.5,
        parity_share: 1.0,
        stand_in: parm_simulator::StandIn::default(),
        shape: Shape { instances, parity_only: 0, slots: 1 },
        fleet: parm_simulator::Fleet::default(),
        settings,
        deadline: Duration::from_secs(60),
        lengths: Lengths::default(),
        encode: Duration::from_micros(93),
        decode: Duration::from_micros(8),
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
