//! Arrival processes: when each request is meant to be sent, fixed before the run.
//!
//! The schedule is a pure function of the process and a seed, so every policy of an experiment faces the same arrivals.
//! Latency is counted from the intended time, however late the sender was (no coordinated omission).

use std::time::Duration;

use parm_durations::Millis;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp, Gamma};
use serde::{Deserialize, Serialize};

use crate::{Error, numbers};

/// How requests arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Arrivals {
    /// Evenly spaced.
    Constant {
        /// Requests per second.
        rate: f64,
    },
    /// Independent: exponential gaps.
    Poisson {
        /// Requests per second.
        rate: f64,
    },
    /// Gamma-distributed gaps: burstier than Poisson above a variation of 1, smoother below.
    Gamma {
        /// Requests per second.
        rate: f64,
        /// Standard deviation of the gaps over their mean.
        cv: f64,
    },
    /// Poisson bursts between pauses.
    Bursts {
        /// Requests per second within a burst.
        rate: f64,
        /// Milliseconds that a burst lasts.
        #[serde(rename = "on_ms", with = "Millis")]
        on: Duration,
        /// Milliseconds that a pause lasts.
        #[serde(rename = "off_ms", with = "Millis")]
        off: Duration,
    },
    /// Recorded times, replayed.
    Trace {
        /// Seconds since the start, in order.
        seconds: Vec<f64>,
    },
    /// Recorded times, replayed again and again, with a gap of average length in between.
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
            Arrivals::Constant { rate } | Arrivals::Poisson { rate } | Arrivals::Gamma { rate, .. } => *rate,
            Arrivals::Bursts { rate, on, off } => rate * on.div_duration_f64(*on + *off),
            Arrivals::Trace { seconds } => {
                seconds.len() as f64 / seconds.last().copied().unwrap_or(1.0).max(1e-9)
            }
            Arrivals::Again { seconds } => seconds.len() as f64 / period(seconds),
        }
    }

    /// Returns the intended send times from the start of the run; only a trace ends. The same seed gives the same times.
    pub fn schedule(&self, seed: u64) -> Result<Times, Error> {
        let gaps = match self {
            Arrivals::Constant { rate } => Gaps::Constant(1.0 / positive(*rate)?),
            Arrivals::Poisson { rate } => Gaps::Exponential(exponential(*rate)?),
            Arrivals::Gamma { rate, cv } => {
                let rate = positive(*rate)?;
                let shape = 1.0 / (cv * cv);
                // A gap has mean shape * scale = 1 / rate and variation 1 / sqrt(shape) = cv.
                let gamma = Gamma::new(shape, 1.0 / (rate * shape));
                Gaps::Gamma(gamma.ok().filter(|_| *cv > 0.0).ok_or(Error::BadVariation { cv: *cv })?)
            }
            Arrivals::Bursts { rate, on, off } => {
                if on.is_zero() {
                    return Err(Error::BadBurst { off: *off });
                }
                let (on, off) = (on.as_secs_f64(), off.as_secs_f64());
                Gaps::Bursts { exponential: exponential(*rate)?, on, off }
            }
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

fn positive(rate: f64) -> Result<f64, Error> {
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err(Error::BadRate { rate }) }
}

fn exponential(rate: f64) -> Result<Exp<f64>, Error> {
    Exp::new(positive(rate)?).map_err(|_| Error::BadRate { rate })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 11;

    fn times(arrivals: &Arrivals, count: usize) -> Vec<f64> {
        arrivals.schedule(SEED).unwrap().take(count).map(|time| time.as_secs_f64()).collect()
    }

    fn bursts(rate: f64, on_ms: u64, off_ms: u64) -> Arrivals {
        Arrivals::Bursts { rate, on: Duration::from_millis(on_ms), off: Duration::from_millis(off_ms) }
    }

    fn gaps(times: &[f64]) -> Vec<f64> {
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn every_process_offers_its_stated_rate() {
        for arrivals in [
            Arrivals::Constant { rate: 250.0 },
            Arrivals::Poisson { rate: 250.0 },
            Arrivals::Gamma { rate: 250.0, cv: 3.0 },
            Arrivals::Gamma { rate: 250.0, cv: 0.3 },
            bursts(1000.0, 100, 300),
        ] {
            let times = times(&arrivals, 200_000);
            let offered = times.len() as f64 / times.last().unwrap();
            assert!((offered / arrivals.rate() - 1.0).abs() < 0.03, "{arrivals:?} offers {offered}");
        }
    }

    #[test]
    fn gamma_gaps_have_the_configured_variation() {
        for cv in [0.5, 1.0, 2.0] {
            let gaps = gaps(&times(&Arrivals::Gamma { rate: 100.0, cv }, 100_000));
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((variance.sqrt() / mean / cv - 1.0).abs() < 0.05, "cv {cv}: {}", variance.sqrt() / mean);
        }
    }

    #[test]
    fn nothing_arrives_in_a_pause() {
        for time in times(&bursts(500.0, 50, 150), 5_000) {
            assert!(time % 0.2 <= 0.05 + 1e-6, "{time}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule() {
        let poisson = Arrivals::Poisson { rate: 10.0 };
        assert_eq!(times(&poisson, 100), times(&poisson, 100));
        let other: Vec<_> = poisson.schedule(SEED + 1).unwrap().take(100).map(|t| t.as_secs_f64()).collect();
        assert_ne!(times(&poisson, 100), other);
    }

    #[test]
    fn times_beyond_all_clocks_are_the_latest_ones() {
        for arrivals in [
            Arrivals::Constant { rate: 1e-300 },
            Arrivals::Poisson { rate: 1e-300 },
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
        let refused = |arrivals: Arrivals| arrivals.schedule(SEED).err();
        assert_eq!(refused(Arrivals::Poisson { rate: 0.0 }), Some(Error::BadRate { rate: 0.0 }));
        assert_eq!(refused(Arrivals::Gamma { rate: 1.0, cv: -1.0 }), Some(Error::BadVariation { cv: -1.0 }));
        let burst = bursts(1.0, 0, 5);
        assert_eq!(refused(burst), Some(Error::BadBurst { off: Duration::from_millis(5) }));
    }
}
