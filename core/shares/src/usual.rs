//! What a model's jobs usually take.

use std::time::Duration;

/// How much of what the last job took goes into what jobs usually take.
const SMOOTHING: f64 = 0.125;

/// A job counts for at most so many usual ones: an instance that hangs must not cost its share the others as well.
const MOST: f64 = 10.0;

/// Seconds that a usual job counts for at least in that bound, so that a model of which jobs failed at once is still measured.
const LEAST: f64 = 1e-4;

/// In seconds; unknown before the first job has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usual(Option<f64>);

impl Usual {
    /// What a job is charged when it starts.
    pub(crate) fn expected(self) -> f64 {
        self.0.unwrap_or(0.0)
    }

    /// What a job is charged that took so long. What it held an instance for beyond `MOST` times the usual was hardly its own
    /// doing.
    pub(crate) fn learn(&mut self, took: Duration) -> f64 {
        let most = self.0.map_or(f64::INFINITY, |usual| MOST * usual.max(LEAST));
        let took = took.as_secs_f64().min(most);
        self.0 = Some(self.0.map_or(took, |usual| usual + SMOOTHING * (took - usual)));
        took
    }
}
