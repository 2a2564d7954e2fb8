//! How long a run of a model takes: a base for all instances, the spread of single runs, and the rest of a run by age.

use super::{Rest, Sizes, Speed};

/// Runs that the base remembers.
const WINDOW: f32 = 256.0;

/// Runs after which the base is trusted, and a straggler moves it no further than others do.
const FIRST: f32 = 5.0;

/// A run counts so many standard deviations at most: stragglers must not move the base.
const STEP: f32 = 2.0;

/// The variance of a normal number over that of the same number cut at two standard deviations.
const CUT: f32 = 1.086;

/// The times of a model.
#[derive(Debug)]
pub(crate) struct Times {
    /// ln of the usual run in nanoseconds by its work, at an instance whose [`Speed`] has mean 0.
    pub(crate) sizes: Sizes,
    /// Runs in the deviation.
    weight: f32,
    /// Standard deviation of ln(run) at one instance.
    pub(crate) deviation: f32,
    /// The mean [`Speed`] of the median instance, and the factor that it stands for.
    pub(crate) median: f32,
    factor: f64,
    pub(crate) rest: Rest,
}

impl Default for Times {
    fn default() -> Self {
        // A wide spread until it is known: no instance counts as slow by chance.
        Self {
            sizes: Sizes::default(),
            weight: 0.0,
            deviation: 0.3,
            median: 0.0,
            factor: 1.0,
            rest: Rest::default(),
        }
    }
}

impl Times {
    /// Learns from a run of so much work and so many nanoseconds, of which `expected` were expected when it began.
    pub(crate) fn learn(&mut self, speed: &mut Speed, work: u32, nanos: f64, expected: Option<f64>) {
        let log = nanos.max(1.0).ln() as f32;
        let base = self.sizes.log(work).unwrap_or(log - speed.mean().unwrap_or_default());
        let residual = speed.learn(log - base, self.deviation);
        self.weight = (self.weight + 1.0).min(WINDOW);
        let most = STEP * self.deviation;
        let clipped = residual.clamp(-most, most);
        self.sizes.learn(work, base, if self.sizes.weight(work) < FIRST { residual } else { clipped });
        let variance = self.deviation * self.deviation;
        let variance = variance + (CUT * clipped * clipped - variance) / self.weight.max(20.0);
        self.deviation = variance.sqrt().max(0.01);
        if let Some(expected) = expected {
            self.rest.add(nanos / expected);
        }
    }

    /// Sets the median of the instances' speeds.
    pub(crate) fn compare(&mut self, median: f32) {
        (self.median, self.factor) = (median, f64::from(median).exp());
    }

    /// The nanoseconds of a usual run of so much work at an instance that is so many times slower; `None` while nothing is
    /// known.
    pub(crate) fn usual(&self, factor: f32, work: u32) -> Option<f64> {
        Some(self.sizes.nanos(work)? * self.factor * f64::from(factor))
    }

    /// The expected nanoseconds of a new run, stragglers included.
    pub(crate) fn expected(&self, factor: f32, work: u32) -> Option<f64> {
        Some(self.usual(factor, work)? * self.rest.mean)
    }
}
