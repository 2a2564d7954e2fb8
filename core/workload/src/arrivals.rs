//! Arrival processes: when each request is meant to be sent, fixed before the run.
//!
//! The shape of arrivals is a [`Pattern`]; the rate comes from the load. Configuration files write a pattern as a table, command
//! lines as a word: `poisson`, `gamma:2.5`, `bursts:200ms/800ms`.
//!
//! The schedule is a pure function of the process and a seed, so every policy of an experiment faces the same arrivals.
//! Latency is counted from the intended time, however late the sender was (no coordinated omission).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use parm_durations::Millis;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp, Gamma};
use serde::{Deserialize, Serialize};

use crate::{Error, numbers};

/// When requests arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// In a pattern.
    At {
        /// Their shape.
        pattern: Pattern,
        /// Requests per second on average.
        rate: f64,
    },
    /// At recorded times.
    Trace {
        /// Seconds since the start, in order.
        seconds: Vec<f64>,
    },
    /// At recorded times, again and again, with a gap of average length in between.
    Again {
        /// Seconds since the start, in order.
        seconds: Vec<f64>,
    },
}

impl Arrivals {
    /// Reads a trace: one time in seconds a line, in order; empty lines and `#` comments are skipped.
    pub fn trace(text: &str) -> Result<Self, Error> {
        let (seconds, _) = numbers::arrivals(text)?;
        Ok(Arrivals::Trace { seconds })
    }

    /// The mean rate in requests per second.
    pub fn rate(&self) -> f64 {
        match self {
            Arrivals::At { rate, .. } => *rate,
            Arrivals::Trace { seconds } => {
                seconds.len() as f64 / seconds.last().copied().unwrap_or(1.0).max(1e-9)
            }
            Arrivals::Again { seconds } => seconds.len() as f64 / period(seconds),
        }
    }

    /// Returns the intended send times from the start of the run; only a trace ends. The same seed gives the same times.
    pub fn schedule(&self, seed: u64) -> Result<Times, Error> {
        let gaps = match self {
            Arrivals::At { pattern, rate } => pattern.gaps(*rate)?,
            Arrivals::Trace { seconds } => Gaps::Trace(seconds.clone().into_iter()),
            Arrivals::Again { seconds } => {
                let (period, seconds) = (period(seconds), seconds.clone());
                Gaps::Again { seconds, period, next: 0 }
            }
        };
        Ok(Times { gaps, random: ChaCha8Rng::seed_from_u64(seed), at: 0.0 })
    }
}

/// The intended send times of one run.
#[derive(Debug)]
pub struct Times {
    gaps: Gaps,
    random: ChaCha8Rng,
    /// Seconds since the start; for bursts, seconds of burst only.
    at: f64,
}

#[derive(Debug)]
enum Gaps {
    Constant(f64),
    Exponential(Exp<f64>),
    Gamma(Gamma<f64>),
    Bursts { exponential: Exp<f64>, on: f64, off: f64 },
    Trace(std::vec::IntoIter<f64>),
    Again { seconds: Vec<f64>, period: f64, next: u64 },
}

impl Iterator for Times {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let at = match &mut self.gaps {
            Gaps::Trace(times) => times.next()?,
            Gaps::Again { seconds, period, next } => {
                let count = seconds.len() as u64;
                let (round, index) = (*next / count.max(1), *next % count.max(1));
                *next += 1;
                round as f64 * *period + (seconds.get(index as usize)? - seconds[0])
            }
            Gaps::Constant(gap) => {
                self.at += *gap;
                self.at
            }
            Gaps::Exponential(gap) => {
                self.at += gap.sample(&mut self.random);
                self.at
            }
            Gaps::Gamma(gap) => {
                self.at += gap.sample(&mut self.random);
                self.at
            }
            Gaps::Bursts { exponential, on, off } => {
                self.at += exponential.sample(&mut self.random);
                // Time runs only within bursts; every finished burst is followed by a pause.
                self.at + (self.at / *on).floor() * *off
            }
        };
        Some(Duration::try_from_secs_f64(at).unwrap_or(Duration::MAX))
    }
}

/// Returns the time from one start of a recording to the next.
fn period(seconds: &[f64]) -> f64 {
    let length = seconds.last().copied().unwrap_or(0.0) - seconds.first().copied().unwrap_or(0.0);
    let gaps = seconds.len().saturating_sub(1).max(1) as f64;
    (length * (gaps + 1.0) / gaps).max(1e-9)
}

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
        Arrivals::At { pattern: self, rate }
    }

    fn gaps(self, rate: f64) -> Result<Gaps, Error> {
        let refused = || Error::BadRate { rate };
        if !(rate.is_finite() && rate > 0.0) {
            return Err(refused());
        }
        let exponential = |rate| Exp::new(rate).map_err(|_| refused());
        Ok(match self {
            Pattern::Constant => Gaps::Constant(1.0 / rate),
            Pattern::Poisson => Gaps::Exponential(exponential(rate)?),
            Pattern::Gamma { cv } => {
                let shape = 1.0 / (cv * cv);
                // A gap has mean shape * scale = 1 / rate and variation 1 / sqrt(shape) = cv.
                let gamma = Gamma::new(shape, 1.0 / (rate * shape));
                Gaps::Gamma(gamma.ok().filter(|_| cv > 0.0).ok_or(Error::BadVariation { cv })?)
            }
            Pattern::Bursts { on, off } if on.is_zero() => return Err(Error::BadBurst { off }),
            Pattern::Bursts { on, off } => {
                let within = exponential(rate * (on + off).div_duration_f64(on))?;
                Gaps::Bursts { exponential: within, on: on.as_secs_f64(), off: off.as_secs_f64() }
            }
        })
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

    const SEED: u64 = 11;

    fn times(arrivals: &Arrivals, count: usize) -> Vec<f64> {
        arrivals.schedule(SEED).unwrap().take(count).map(|time| time.as_secs_f64()).collect()
    }

    fn bursts(on_ms: u64, off_ms: u64) -> Pattern {
        Pattern::Bursts { on: Duration::from_millis(on_ms), off: Duration::from_millis(off_ms) }
    }

    fn gaps(times: &[f64]) -> Vec<f64> {
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn every_process_offers_its_stated_rate() {
        for pattern in [
            Pattern::Constant,
            Pattern::Poisson,
            Pattern::Gamma { cv: 3.0 },
            Pattern::Gamma { cv: 0.3 },
            bursts(100, 300),
        ] {
            let times = times(&pattern.at(250.0), 200_000);
            let offered = times.len() as f64 / times.last().unwrap();
            assert!((offered / 250.0 - 1.0).abs() < 0.03, "{pattern:?} offers {offered}");
        }
    }

    #[test]
    fn gamma_gaps_have_the_configured_variation() {
        for cv in [0.5, 1.0, 2.0] {
            let gaps = gaps(&times(&Pattern::Gamma { cv }.at(100.0), 100_000));
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((variance.sqrt() / mean / cv - 1.0).abs() < 0.05, "cv {cv}: {}", variance.sqrt() / mean);
        }
    }

    #[test]
    fn nothing_arrives_in_a_pause() {
        for time in times(&bursts(50, 150).at(125.0), 5_000) {
            assert!(time % 0.2 <= 0.05 + 1e-6, "{time}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule() {
        let poisson = Pattern::Poisson.at(10.0);
        assert_eq!(times(&poisson, 100), times(&poisson, 100));
        let other: Vec<_> = poisson.schedule(SEED + 1).unwrap().take(100).map(|t| t.as_secs_f64()).collect();
        assert_ne!(times(&poisson, 100), other);
    }

    #[test]
    fn times_beyond_all_clocks_are_the_latest_ones() {
        for arrivals in [
            Pattern::Constant.at(1e-300),
            Pattern::Poisson.at(1e-300),
            Arrivals::Trace { seconds: vec![1e300] },
        ] {
            assert_eq!(arrivals.schedule(SEED).unwrap().next(), Some(Duration::MAX), "{arrivals:?}");
        }
    }

    #[test]
    fn recording_is_replayed_once_or_again_at_its_rate() {
        let once = Arrivals::trace("# seconds\n0.5\n\n0.5\n2 # late\n").unwrap();
        assert_eq!(times(&once, 10), [0.5, 0.5, 2.0]);
        let again = Arrivals::Again { seconds: vec![5.0, 5.5, 7.0] };
        assert_eq!(again.rate(), 1.0);
        assert_eq!(times(&again, 7), [0.0, 0.5, 2.0, 3.0, 3.5, 5.0, 6.0]);
        assert_eq!(times(&Arrivals::Again { seconds: vec![] }, 2), [0.0; 0]);
    }

    #[test]
    fn impossible_arrival_processes_are_rejected() {
        let refused = |pattern: Pattern, rate| pattern.at(rate).schedule(SEED).err();
        assert_eq!(refused(Pattern::Poisson, 0.0), Some(Error::BadRate { rate: 0.0 }));
        assert_eq!(refused(Pattern::Gamma { cv: -1.0 }, 1.0), Some(Error::BadVariation { cv: -1.0 }));
        assert_eq!(refused(bursts(0, 5), 1.0), Some(Error::BadBurst { off: Duration::from_millis(5) }));
    }

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
}
