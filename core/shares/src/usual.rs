//! Usual duration of a model's jobs, as an exponential moving average.

use std::time::Duration;

/// Weight of the latest job in the average.
const SMOOTHING: f64 = 0.125;

/// Bound on what one job costs its share, in usual durations: a hung instance must not use up the share's time
/// elsewhere.
const MOST: f64 = 10.0;

/// Lower bound in seconds on the usual duration for that limit: a model whose first jobs failed at once is still
/// measured.
const LEAST: f64 = 1e-4;

/// The most seconds that the first job of a model is charged: it may hang, or load what later ones need.
const FIRST: f64 = 1.0;

/// In seconds; `None` before the first job ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usual(Option<f64>);

impl Usual {
    /// Seconds that a job is charged when it starts.
    pub(crate) fn expected(self) -> f64 {
        self.0.unwrap_or(0.0)
    }

    /// Seconds that a finished job is charged. Time beyond `MOST` usual durations is attributed to the instance, not to
    /// the job.
    pub(crate) fn learn(&mut self, took: Duration) -> f64 {
        let most = self.0.map_or(FIRST, |usual| MOST * usual.max(LEAST));
        let took = took.as_secs_f64().min(most);
        self.0 = Some(self.0.map_or(took, |usual| usual + SMOOTHING * (took - usual)));
        took
    }
}
