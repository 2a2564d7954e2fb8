//! Service times: how long an instance takes for a batch without faults.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::distribution::Distribution;
use parm_durations::Time;
use parm_random::Random;

/// Service times of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// Milliseconds for a batch of one row. Default: lognormal of median 20 and sigma 0.05, as a quiet machine has it.
    pub time_ms: Distribution,
    /// The time that each further row of a batch adds, as a share of the time for one. Default 1: batches gain nothing.
    pub row_share: f64,
    /// Measured batches instead of `row_share`: pairs of rows and time, in times of one row, from small to
    /// large. A batch takes as long as the next listed one; a larger one than all of them runs in several parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub row_times: Vec<(u16, f64)>,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            time_ms: Distribution::Lognormal { median: 20.0, sigma: 0.05 },
            row_share: 1.0,
            row_times: Vec::new(),
        }
    }
}

impl Service {
    /// Rejects an invalid service time, or one without a mean: the load would be undefined.
    pub fn check(&self) -> Result<(), Error> {
        self.time_ms.check()?;
        let (mean_ms, row_share) = (self.time_ms.mean(), self.row_share);
        let good = mean_ms > 0.0 && mean_ms.is_finite() && (0.0..=1e3).contains(&row_share);
        if !good {
            return Err(Error::BadService { mean_ms, row_share });
        }
        let one = self.row_times.first().is_none_or(|first| *first == (1, 1.0));
        let rising = self.row_times.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let bounded = self.row_times.iter().all(|(_, time)| (0.0..=1e6).contains(time));
        if one && rising && bounded { Ok(()) } else { Err(Error::BadRowTimes) }
    }

    /// Whether a batch takes less time than its rows one by one.
    pub fn gains(&self) -> bool {
        match self.row_times.as_slice() {
            [] => self.row_share < 1.0,
            times => times.iter().any(|(rows, time)| *time < f64::from(*rows)),
        }
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
        if let Some((most, longest)) = self.row_times.last() {
            let (full, rest) = (rows.saturating_sub(1) / usize::from(*most), rows.max(1) - 1);
            let rest = rest % usize::from(*most) + 1;
            let at = self.row_times.partition_point(|(listed, _)| usize::from(*listed) < rest);
            return full as f64 * longest + self.row_times[at].1;
        }
        1.0 + self.row_share * rows.saturating_sub(1) as f64
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
    pub start: Time,
}

/// Separates these draws from those of faults.
const STREAM: u64 = 0x5E41_1CE0;

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = Run { seed: 1, instance: 0, start: Time::ZERO };

    #[test]
    fn further_rows_of_a_batch_cost_their_share() {
        let service = Service {
            time_ms: Distribution::Constant { value: 20.0 },
            row_share: 0.25,
            ..Service::default()
        };
        assert_eq!([1, 2, 5].map(|rows| service.nanos(rows, RUN)), [20e6, 25e6, 40e6]);
    }

    #[test]
    fn batch_takes_as_long_as_the_next_listed_one() {
        let time_ms = Distribution::Constant { value: 2.0 };
        let service =
            Service { time_ms, row_times: vec![(1, 1.0), (4, 1.5), (8, 2.5)], ..Service::default() };
        assert_eq!(service.check(), Ok(()));
        assert_eq!(
            [0, 1, 2, 4, 5, 8, 9, 20].map(|rows| service.rows(rows)),
            [1.0, 1.0, 1.5, 1.5, 2.5, 2.5, 3.5, 6.5]
        );
        assert!(service.gains());
        for row_times in [
            vec![(2, 1.0)],
            vec![(1, 1.0), (1, 2.0)],
            vec![(1, 1.0), (2, 0.5)],
            vec![(1, 1.0), (2, f64::NAN)],
        ] {
            let refused = Service { row_times, ..service.clone() };
            assert_eq!(refused.check(), Err(Error::BadRowTimes), "{refused:?}");
        }
    }

    #[test]
    fn service_time_is_a_function_of_the_run() {
        let service =
            Service { time_ms: Distribution::Exponential { mean: 5.0, shift: 0.0 }, ..Service::default() };
        assert_eq!(service.nanos(1, RUN), service.nanos(1, RUN));
        assert_ne!(service.nanos(1, RUN), service.nanos(1, Run { instance: 1, ..RUN }));
        assert_ne!(service.nanos(1, RUN), service.nanos(1, Run { start: Time::from_nanos(1), ..RUN }));
    }

    #[test]
    fn service_time_without_a_mean_is_rejected() {
        let time_ms = Distribution::Pareto { min: 1.0, shape: 1.0 };
        let service = Service { time_ms, ..Service::default() };
        assert_eq!(service.check(), Err(Error::BadService { mean_ms: f64::INFINITY, row_share: 1.0 }));
    }
}
