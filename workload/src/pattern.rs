//! The shape of arrivals; the rate comes from the load.

use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;

/// How queries arrive, whatever their rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Pattern {
    /// Evenly spaced.
    Constant,
    /// Independently of each other.
    #[default]
    Poisson,
    /// Gamma-distributed gaps.
    Gamma {
        /// Standard deviation of the gaps over their mean: above 1 burstier than Poisson, below smoother.
        cv: f64,
    },
    /// Poisson bursts between pauses.
    Bursts {
        /// Length of a burst in milliseconds.
        on_ms: u64,
        /// Length of a pause in milliseconds.
        off_ms: u64,
    },
}

impl Pattern {
    /// Arrivals of this shape with a mean rate per second.
    pub fn at(self, rate: f64) -> Arrivals {
        match self {
            Pattern::Constant => Arrivals::Constant { rate },
            Pattern::Poisson => Arrivals::Poisson { rate },
            Pattern::Gamma { cv } => Arrivals::Gamma { rate, cv },
            Pattern::Bursts { on_ms, off_ms } => {
                let within = rate * (on_ms + off_ms) as f64 / on_ms.max(1) as f64;
                Arrivals::Bursts { rate: within, on_ms, off_ms }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_has_the_mean_rate_asked_for() {
        for pattern in [
            Pattern::Constant,
            Pattern::Poisson,
            Pattern::Gamma { cv: 2.0 },
            Pattern::Bursts { on_ms: 100, off_ms: 300 },
        ] {
            assert!((pattern.at(250.0).rate() - 250.0).abs() < 1e-9, "{pattern:?}");
        }
    }
}
