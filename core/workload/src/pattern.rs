//! The shape of arrivals; the rate comes from the load.
//!
//! Configuration files write it as a table, command lines as a word: `poisson`, `gamma:2.5`, `bursts:200ms/800ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use parm_durations::Millis;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::arrivals::Arrivals;

/// The shape of arrivals at any rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[serde(expecting = "a table such as { kind = \"poisson\" }")]
pub enum Pattern {
    /// Evenly spaced.
    Constant,
    /// Independent.
    #[default]
    Poisson,
    /// Gamma-distributed gaps.
    Gamma {
        /// Standard deviation of the gaps over their mean: above 1 burstier than Poisson, below smoother.
        cv: f64,
    },
    /// Poisson bursts between pauses.
    Bursts {
        /// Milliseconds that a burst lasts.
        #[serde(rename = "on_ms", with = "Millis")]
        on: Duration,
        /// Milliseconds that a pause lasts.
        #[serde(rename = "off_ms", with = "Millis")]
        off: Duration,
    },
}

impl Pattern {
    /// Returns arrivals of this shape with a mean rate per second.
    pub fn at(self, rate: f64) -> Arrivals {
        match self {
            Pattern::Constant => Arrivals::Constant { rate },
            Pattern::Poisson => Arrivals::Poisson { rate },
            Pattern::Gamma { cv } => Arrivals::Gamma { rate, cv },
            Pattern::Bursts { on, off } => {
                let within = rate * (on + off).div_duration_f64(on.max(Duration::from_millis(1)));
                Arrivals::Bursts { rate: within, on, off }
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
                let ms = |text: &str| {
                    let ms = text.strip_suffix("ms")?.parse().ok().filter(|ms| *ms < 1 << 32)?;
                    Some(Duration::from_millis(ms))
                };
                let (on, off) = ms(on).zip(ms(off)).ok_or_else(refused)?;
                if on.is_zero() { Err(Error::BadBurst { off }) } else { Ok(Pattern::Bursts { on, off }) }
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
            Pattern::Bursts { on, off } => {
                write!(f, "bursts:{}ms/{}ms", on.as_millis(), off.as_millis())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_parses_and_prints_the_same() {
        for text in ["constant", "poisson", "gamma:2.5", "bursts:200ms/800ms"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        for bad in ["", "poisson:3", "gamma", "gamma:x", "bursts:200/800", "bursts:5ms", "weibull"] {
            assert_eq!(bad.parse::<Pattern>(), Err(Error::BadPattern { text: bad.into() }));
        }
        assert_eq!("gamma:-1".parse::<Pattern>(), Err(Error::BadVariation { cv: -1.0 }));
        assert_eq!(
            "bursts:0ms/5ms".parse::<Pattern>(),
            Err(Error::BadBurst { off: Duration::from_millis(5) })
        );
    }

    #[test]
    fn every_pattern_has_the_requested_mean_rate() {
        for pattern in [
            Pattern::Constant,
            Pattern::Poisson,
            Pattern::Gamma { cv: 2.0 },
            Pattern::Bursts { on: Duration::from_millis(100), off: Duration::from_millis(300) },
        ] {
            assert!((pattern.at(250.0).rate() - 250.0).abs() < 1e-9, "{pattern:?}");
        }
    }
}
