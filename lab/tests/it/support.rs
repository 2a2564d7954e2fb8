//! Base runs that tests vary, and what is seen of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use parm_dispatcher::{Action, End, JobKey, Time, Why};
use parm_lab::simulator::{Answered, Outcome, Quiet, Run, Tally};
use parm_lab::tuner::{Job, Recording};
use parm_lab::world::Event;
use parm_settings::recording::RecordedRole;
use parm_settings::{BatchSize, PolicyKind, PoolSettings};
use parm_workload::Faults;
use parm_workload::Pattern;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;

pub(crate) const SERVICE: f64 = 0.020;

/// Poisson arrivals at `instances` instances of 20 ms without redundancy, at this share of their capacity.
pub(crate) fn run(instances: u32, load: f64) -> Run {
    let mut settings = PoolSettings { policy: PolicyKind::Equal, ..PoolSettings::default() };
    settings.batch.max_size = BatchSize::ONE;
    settings.queue_limit = std::num::NonZeroU32::new(1 << 20).unwrap();
    let arrivals = Pattern::Poisson.at(load * f64::from(instances) / SERVICE);
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

/// The tally of a run, and the end of each counted query.
pub(crate) fn watched(run: &Run) -> (Tally, Vec<Answered>) {
    let mut answered = Vec::new();
    let tally = run.watched(&Quiet, &mut |end| answered.extend(end.counted.then_some(end)));
    (tally.unwrap(), answered)
}

impl Tail {
    pub(crate) fn of(run: &Run) -> Self {
        let (tally, answered) = watched(run);
        assert!(answered.iter().all(|answered| answered.outcome != Outcome::Failed));
        let mut latencies: Vec<f64> = answered.iter().map(|answered| answered.latency as f64 / 1e6).collect();
        latencies.sort_by(f64::total_cmp);
        let approximate = answered.iter().map(|answered| answered.outcome.is_approximate()).collect();
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

/// Records a run as a frontend does, in microseconds.
pub(crate) fn recorded(run: &Run) -> Recording {
    eprintln!("seed {}", run.seed);
    let mut world = run.world().unwrap();
    let names = (0..run.instances).map(|number| (number, format!("test://{number}")));
    let mut recording = Recording { instances: names.collect(), ..Recording::default() };
    let mut held: BTreeMap<JobKey, (Time, Job)> = BTreeMap::new();
    let micros = |at: Time| at.as_nanos() / 1000;
    let seconds = |micros: u64| micros as f64 / 1e6;
    while world.advance() {
        world.replies.clear();
        let now = seconds(micros(world.now));
        for event in std::mem::take(&mut world.log) {
            match event {
                Event::Arrived(_, query) if query.model == world.model => recording.arrivals.push(now),
                Event::Asks(Action::Run { job, instance, model, why, rows }) => {
                    let Some(instance) = world.server(instance) else { continue };
                    let role = match why {
                        _ if Some(model) == world.stand_in => RecordedRole::StandIn,
                        _ if model != world.model => RecordedRole::Parity,
                        Why::First | Why::Retry => RecordedRole::Deployed,
                        Why::Hedge | Why::Copy | Why::Explore | Why::StandIn => RecordedRole::Copy,
                    };
                    let arrived =
                        world.open.get(&rows[0].query).map(|(_, arrived)| seconds(micros(*arrived)));
                    let (instance, rows, ok) = (instance as u32, rows.len() as u32, true);
                    let job_here = Job { instance, at: now, took: 0.0, rows, role, ok, arrived };
                    held.insert(job, (world.now, job_here));
                }
                Event::Ended(job, End::Answered(_)) => {
                    let Some((given, job)) = held.remove(&job) else { continue };
                    let end = seconds(micros(given) + world.now.since(given).as_micros() as u64);
                    recording.jobs.push(Job { took: end - job.at, ..job });
                    recording.seconds = recording.seconds.max(end);
                }
                _ => {}
            }
        }
    }
    recording.jobs.sort_by(|one, other| one.at.total_cmp(&other.at));
    recording.seconds = recording.seconds.max(recording.arrivals.last().copied().unwrap_or_default());
    recording
}
