//! How long a run of a model takes: a base for all instances, the spread of single runs, and the rest of a run by age.

use super::{Rest, Sizes, Speed};

/// Runs that the base remembers.
const WINDOW: f32 = 256.0;

/// Runs after which the base is trusted, and a straggler moves it no further than others do.
const FIRST: f32 = 5.0;

/// The share of the base that a run may lie away before it counts as this far: stragglers must not move the base.
const MOST: f32 = 3.0;

/// The times of a model.
#[derive(Debug)]
pub(crate) struct Times {
    /// ln of the usual run in nanoseconds by its work, at an instance whose [`Speed`] has mean 0.
    pub(crate) sizes: Sizes,
    /// Runs in the deviation.
    weight: f32,
    /// Standard deviation of ln(run) at one instance.
    deviation: f32,
    /// The mean [`Speed`] of the median instance.
    median: f32,
    pub(crate) rest: Rest,
}

impl Default for Times {
    fn default() -> Self {
        // A wide spread until it is known: no instance counts as slow by chance.
        Self { sizes: Sizes::default(), weight: 0.0, deviation: 0.3, median: 0.0, rest: Rest::default() }
    }
}

impl Times {
    /// Whether anything is known.
    pub(crate) fn is_known(&self) -> bool {
        self.sizes.is_known()
    }

    /// Learns from a run of so much work and so many nanoseconds, of which `expected` were expected when it began.
    pub(crate) fn learn(&mut self, speed: &mut Speed, work: u32, nanos: f64, expected: Option<f64>) {
        let log = nanos.max(1.0).ln() as f32;
        let base = self.sizes.log(work).filter(|_| self.sizes.has(work)).unwrap_or(log - speed.known());
        let residual = speed.learn(log - base, self.deviation);
        self.weight = (self.weight + 1.0).min(WINDOW);
        let most = if self.sizes.weight(work) < FIRST { f32::INFINITY } else { MOST * self.deviation };
        let clipped = residual.clamp(-most, most);
        self.sizes.learn(work, base, clipped);
        // The mean distance of a normal distribution is 0.8 standard deviations.
        let distance = (clipped.abs() * 1.25).min(2.0 * MOST * self.deviation);
        self.deviation = (self.deviation + (distance - self.deviation) / self.weight.max(20.0)).max(0.01);
        if let Some(expected) = expected {
            self.rest.add(nanos / expected);
        }
    }

    /// Sets the median of the instances' speeds.
    pub(crate) fn compare(&mut self, median: f32) {
        self.median = median;
    }

    pub(crate) fn deviation(&self) -> f32 {
        self.deviation
    }

    pub(crate) fn median(&self) -> f32 {
        self.median
    }

    /// The nanoseconds of a usual run of so much work at an instance of this speed; `None` while nothing is known.
    pub(crate) fn usual(&self, speed: &Speed, work: u32) -> Option<f64> {
        Some(f64::from(self.sizes.log(work)? + self.median + speed.slower()).exp())
    }

    /// The expected nanoseconds of a new run, stragglers included.
    pub(crate) fn expected(&self, speed: &Speed, work: u32) -> Option<f64> {
        Some(self.usual(speed, work)? * self.rest.mean())
    }
}
