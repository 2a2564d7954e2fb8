//! A replay of recorded arrivals on fitted instances.

use std::time::Duration;

use parm_loadgen::statistics::bootstrap::quantile_of;
use parm_settings::PoolSettings;
use parm_simulator::{Answered, Outcome, Progress, Run, Witness};
use serde::Serialize;

use crate::{Error, Profile, Recording};

/// The frontend of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Its settings.
    pub settings: PoolSettings,
    /// Seed of the first replay; each further one adds one.
    pub seed: u64,
    /// Replays of each variant.
    pub repeats: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self { settings: PoolSettings::default(), seed: 1, repeats: 3 }
    }
}

/// Some quantiles of the latency, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // the names say it
pub struct Tail {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
}

pub(super) struct Replay<'a> {
    pub(super) recording: &'a Recording,
    pub(super) setup: &'a Setup,
    pub(super) progress: &'a dyn Progress,
}

impl Replay<'_> {
    /// Replays on the instances of a profile and some more, and returns the mean of the quantiles.
    pub(super) fn tail(&self, profile: &Profile, more: u32) -> Result<Tail, Error> {
        let mut tails = Vec::new();
        for repeat in 0..self.setup.repeats.max(1) {
            let run = self.run(profile, more, repeat);
            let mut latencies = Latencies { deadline: run.deadline, ms: Vec::new() };
            run.watched(self.progress, &mut latencies)?;
            tails.push(Tail::of(&mut latencies.ms));
        }
        let mean = |of: fn(&Tail) -> f64| tails.iter().map(of).sum::<f64>() / tails.len() as f64;
        Ok(Tail { p50_ms: mean(|t| t.p50_ms), p99_ms: mean(|t| t.p99_ms), p999_ms: mean(|t| t.p999_ms) })
    }

    fn run(&self, profile: &Profile, more: u32, repeat: u32) -> Run {
        let Setup { settings, seed, .. } = self.setup;
        let instances = profile.instances + more;
        let run = Run::new(self.recording.trace(), profile.history(), instances, settings.clone());
        Run {
            seed: seed.wrapping_add(repeat.into()),
            queries: self.recording.arrivals.len() as u64,
            service: profile.service.clone(),
            backup_share: 1.0,
            stand_in: profile.stand_in.unwrap_or(run.stand_in),
            ..run
        }
    }
}

impl Tail {
    /// Returns the quantiles of some latencies in milliseconds, which are reordered.
    pub(super) fn of(ms: &mut [f64]) -> Self {
        let [p50_ms, p99_ms, p999_ms] = [0.5, 0.99, 0.999].map(|share| quantile_of(ms, share));
        Self { p50_ms, p99_ms, p999_ms }
    }
}

/// Collects the latencies of a run. A query without an answer is as late as its deadline.
struct Latencies {
    deadline: Duration,
    ms: Vec<f64>,
}

impl Witness for Latencies {
    fn answered(&mut self, answered: Answered) {
        let ms = answered.latency as f64 / 1e6;
        let failed = answered.outcome == Outcome::Failed;
        self.ms.push(if failed { ms.max(self.deadline.as_secs_f64() * 1e3) } else { ms });
    }
}
