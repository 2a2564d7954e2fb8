//! The shape of arrivals; the rate comes from the load.
//!
//! Configuration files spell it as a table, command lines in a word: `poisson`, `gamma:2.5`, `bursts:200ms/800ms`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;
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

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = || Error::BadPattern { text: text.to_owned() };
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        match (name, rest) {
            ("constant", "") => Ok(Pattern::Constant),
            ("poisson", "") => Ok(Pattern::Poisson),
            ("gamma", cv) => {
                let cv: f64 = cv.parse().map_err(|_| refused())?;
                if cv > 0.0 && cv.is_finite() {
                    Ok(Pattern::Gamma { cv })
                } else {
                    Err(Error::BadVariation { cv })
                }
            }
            ("bursts", lengths) => {
                let (on, off) = lengths.split_once('/').ok_or_else(refused)?;
                let ms = |text: &str| text.strip_suffix("ms")?.parse::<u64>().ok().filter(|ms| *ms < 1 << 32);
                let (on_ms, off_ms) = ms(on).zip(ms(off)).ok_or_else(refused)?;
                if on_ms == 0 {
                    Err(Error::BadBurst { on_ms, off_ms })
                } else {
                    Ok(Pattern::Bursts { on_ms, off_ms })
                }
            }
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Constant => f.write_str("constant"),
            Pattern::Poisson => f.write_str("poisson"),
            Pattern::Gamma { cv } => write!(f, "gamma:{cv}"),
            Pattern::Bursts { on_ms, off_ms } => write!(f, "bursts:{on_ms}ms/{off_ms}ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_read_and_shown_again() {
        for text in ["constant", "poisson", "gamma:2.5", "bursts:200ms/800ms"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        for bad in ["", "poisson:3", "gamma", "gamma:x", "bursts:200/800", "bursts:5ms", "weibull"] {
            assert_eq!(bad.parse::<Pattern>(), Err(Error::BadPattern { text: bad.into() }));
        }
        assert_eq!("gamma:-1".parse::<Pattern>(), Err(Error::BadVariation { cv: -1.0 }));
        assert_eq!("bursts:0ms/5ms".parse::<Pattern>(), Err(Error::BadBurst { on_ms: 0, off_ms: 5 }));
    }

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
