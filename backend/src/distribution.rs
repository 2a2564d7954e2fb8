//! Durations drawn at random: service times of emulated models and injected delays.

use std::time::Duration;

use rand::RngExt;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::Error;

/// A distribution of durations, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Distribution {
    /// Always the same.
    Constant {
        /// The duration.
        ms: f64,
    },
    /// Evenly between two bounds.
    Uniform {
        /// Shortest.
        min_ms: f64,
        /// Longest.
        max_ms: f64,
    },
    /// A fixed part and an exponential part: memoryless stragglers.
    Exponential {
        /// Mean of the exponential part.
        mean_ms: f64,
        /// Added to every draw; 0 by default.
        #[serde(default)]
        shift_ms: f64,
    },
    /// Lognormal: moderate tails, as service times often have.
    Lognormal {
        /// The median.
        median_ms: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// Pareto: heavy tails.
    Pareto {
        /// Shortest.
        min_ms: f64,
        /// Tail exponent; the mean is infinite at 1 and below.
        shape: f64,
    },
}

/// No draw is longer: a heavy tail shall not stop an experiment for good.
const LONGEST: Duration = Duration::from_secs(60);

impl Distribution {
    /// Refuses parameters that describe no distribution.
    pub fn check(&self) -> Result<(), Error> {
        let ok = |value: f64| value.is_finite() && value >= 0.0;
        let wrong = match *self {
            Distribution::Constant { ms } => (!ok(ms)).then_some("ms must be 0 or more"),
            Distribution::Uniform { min_ms, max_ms } => {
                (!ok(min_ms) || !ok(max_ms) || min_ms > max_ms).then_some("0 <= min_ms <= max_ms must hold")
            }
            Distribution::Exponential { mean_ms, shift_ms } => {
                (!ok(mean_ms) || !ok(shift_ms)).then_some("mean_ms and shift_ms must be 0 or more")
            }
            Distribution::Lognormal { median_ms, sigma } => {
                (!ok(median_ms) || !ok(sigma)).then_some("median_ms and sigma must be 0 or more")
            }
            Distribution::Pareto { min_ms, shape } => (!ok(min_ms) || !ok(shape) || shape == 0.0)
                .then_some("min_ms must be 0 or more, shape above 0"),
        };
        wrong.map_or(Ok(()), |message| Err(Error::Distribution { message: message.into() }))
    }

    /// Draws a duration, at most a minute.
    pub fn sample(&self, rng: &mut Pcg64Mcg) -> Duration {
        let ms = match *self {
            Distribution::Constant { ms } => ms,
            Distribution::Uniform { min_ms, max_ms } => min_ms + (max_ms - min_ms) * rng.random::<f64>(),
            Distribution::Exponential { mean_ms, shift_ms } => {
                let unit: f64 = Exp1.sample(rng);
                shift_ms + mean_ms * unit
            }
            Distribution::Lognormal { median_ms, sigma } => {
                let unit: f64 = StandardNormal.sample(rng);
                median_ms * (sigma * unit).exp()
            }
            // By inversion: the uniform draw lies in [0, 1), so the power never divides by zero.
            Distribution::Pareto { min_ms, shape } => min_ms * (1.0 - rng.random::<f64>()).powf(-1.0 / shape),
        };
        Duration::try_from_secs_f64(ms / 1e3).map_or(LONGEST, |duration| duration.min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn quantile(distribution: Distribution, q: f64) -> f64 {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let mut draws: Vec<_> = (0..20_000).map(|_| distribution.sample(&mut rng)).collect();
        draws.sort();
        draws[(q * draws.len() as f64) as usize].as_secs_f64() * 1e3
    }

    #[test]
    fn draws_have_the_quantiles_of_their_distribution() {
        for (distribution, q, expected) in [
            (Distribution::Constant { ms: 2.0 }, 0.9, 2.0),
            (Distribution::Uniform { min_ms: 1.0, max_ms: 3.0 }, 0.25, 1.5),
            (Distribution::Exponential { mean_ms: 4.0, shift_ms: 1.0 }, 0.5, 1.0 + 4.0 * 2f64.ln()),
            (Distribution::Lognormal { median_ms: 5.0, sigma: 0.5 }, 0.8413, 5.0 * 0.5f64.exp()),
            (Distribution::Pareto { min_ms: 2.0, shape: 2.0 }, 0.75, 4.0),
        ] {
            let actual = quantile(distribution, q);
            assert!(
                (actual / expected - 1.0).abs() < 0.03,
                "{distribution:?} at {q}: {actual}, not {expected}"
            );
        }
    }

    #[test]
    fn the_heaviest_tail_ends_at_a_minute() {
        let distribution = Distribution::Pareto { min_ms: 1.0, shape: 0.01 };
        assert_eq!(distribution.check(), Ok(()));
        assert_eq!(quantile(distribution, 0.999), 60_000.0);
    }

    #[test]
    fn parameters_that_describe_nothing_are_refused() {
        for distribution in [
            Distribution::Constant { ms: -1.0 },
            Distribution::Uniform { min_ms: 2.0, max_ms: 1.0 },
            Distribution::Lognormal { median_ms: f64::NAN, sigma: 1.0 },
            Distribution::Pareto { min_ms: 1.0, shape: 0.0 },
        ] {
            assert!(matches!(distribution.check(), Err(Error::Distribution { .. })), "{distribution:?}");
        }
    }
}
