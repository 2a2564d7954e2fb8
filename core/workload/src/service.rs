//! Service times: how long an instance takes for a batch without faults.

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::{Error, clock::Moment};
use parm_random::Random;

/// Service times of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// Milliseconds for a batch of one row. Default: lognormal of median 20 and sigma 0.05, as a quiet machine has it.
    pub time_ms: Distribution,
    /// The time that each further row of a batch adds, as a share of the time for one. Default 1: batches gain nothing.
    pub row_share: f64,
    /// Rows that an engine computes at a time: a batch takes as long as the next multiple. Default 1.
    pub row_step: NonZeroU16,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            time_ms: Distribution::Lognormal { median: 20.0, sigma: 0.05 },
            row_share: 1.0,
            row_step: NonZeroU16::MIN,
        }
    }
}

impl Service {
    /// Rejects an invalid service time, or one without a mean: the load would be undefined.
    pub fn check(&self) -> Result<(), Error> {
        self.time_ms.check()?;
        let (mean_ms, row_share) = (self.time_ms.mean(), self.row_share);
        let good = mean_ms > 0.0 && mean_ms.is_finite() && (0.0..=1e3).contains(&row_share);
        if good { Ok(()) } else { Err(Error::BadService { mean_ms, row_share }) }
    }

    /// Mean time for one row, in seconds.
    pub fn mean_seconds(&self) -> f64 {
        self.time_ms.mean() / 1e3
    }

    /// Returns the nanoseconds that a batch takes.
    pub fn nanos(&self, rows: usize, run: Run) -> f64 {
        let mut draw = Random::of(run.seed, [STREAM, u64::from(run.instance), run.start.as_nanos()]);
        self.time_ms.sample(&mut draw) * self.rows(rows) * 1e6
    }

    /// Time of a batch, in times of one row.
    pub fn rows(&self, rows: usize) -> f64 {
        let steps = rows.div_ceil(self.row_step.get().into());
        1.0 + self.row_share * steps.saturating_sub(1) as f64
    }
}

/// Identifies a run of a model: the same run always takes the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Seed of the experiment.
    pub seed: u64,
    /// The instance, counted from 0.
    pub instance: u32,
    /// When the run starts.
    pub start: Moment,
}

/// Separates these draws from those of faults.
const STREAM: u64 = 0x5E41_1CE0;

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = Run { seed: 1, instance: 0, start: Moment::START };

    #[test]
    fn further_rows_of_a_batch_cost_their_share() {
        let service = Service {
            time_ms: Distribution::Constant { value: 20.0 },
            row_share: 0.25,
            ..Service::default()
        };
        assert_eq!([1, 2, 5].map(|rows| service.nanos(rows, RUN)), [20e6, 25e6, 40e6]);
        let stepped = Service { row_step: NonZeroU16::new(4).unwrap(), ..service };
        assert_eq!([1, 4, 5, 9].map(|rows| stepped.nanos(rows, RUN)), [20e6, 20e6, 25e6, 30e6]);
    }

    #[test]
    fn service_time_is_a_function_of_the_run() {
        let service =
            Service { time_ms: Distribution::Exponential { mean: 5.0, shift: 0.0 }, ..Service::default() };
        assert_eq!(service.nanos(1, RUN), service.nanos(1, RUN));
        assert_ne!(service.nanos(1, RUN), service.nanos(1, Run { instance: 1, ..RUN }));
        assert_ne!(service.nanos(1, RUN), service.nanos(1, Run { start: Moment::from_nanos(1), ..RUN }));
    }

    #[test]
    fn service_time_without_a_mean_is_rejected() {
        let time_ms = Distribution::Pareto { min: 1.0, shape: 1.0 };
        let service = Service { time_ms, ..Service::default() };
        assert_eq!(service.check(), Err(Error::BadService { mean_ms: f64::INFINITY, row_share: 1.0 }));
    }
}
