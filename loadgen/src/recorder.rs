//! The samples of a run, counted from the intended send time, and their distribution.

use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;

pub use crate::outcome::Outcome;

/// One request's end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Intended send time since the start of the run.
    pub intended: Duration,
    /// From the intended send time to the answer; at least the deadline if there was none.
    pub latency: Duration,
    /// How late it was sent.
    pub lag: Duration,
    /// How it ended.
    pub outcome: Outcome,
}

/// The distribution of times, to three digits. Longer ones than an hour count as an hour.
#[derive(Clone, Debug)]
pub struct Times(pub(crate) Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        Self(histogram.unwrap_or_else(|_| unreachable!("the bounds are constants")))
    }
}

impl Times {
    /// Counts a time.
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the time that this share of them does not exceed.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share))
    }

    /// The same, if a time lies beyond it. That is enough for a display; a report requires more.
    pub fn known(&self, share: f64) -> Option<Duration> {
        ((1.0 - share) * self.count() as f64 >= 1.0).then(|| self.quantile(share))
    }
}

/// Writes samples as CSV, one per line in the given order, times in microseconds.
pub fn write(samples: &[Sample], mut to: impl Write) -> io::Result<()> {
    writeln!(to, "intended_us,latency_us,lag_us,outcome")?;
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    for Sample { intended, latency, lag, outcome } in samples {
        let (intended, latency, lag) = (micros(*intended), micros(*latency), micros(*lag));
        writeln!(to, "{intended:.1},{latency:.1},{lag:.1},{}", outcome.name())?;
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_written_one_per_line_in_microseconds() {
        let sample = |ms, us, outcome| Sample {
            intended: Duration::from_millis(ms),
            latency: Duration::from_micros(us),
            lag: Duration::ZERO,
            outcome,
        };
        let mut file = Vec::new();
        write(&[sample(1, 250, Outcome::Exact), sample(2, 300, Outcome::Failed)], &mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert_eq!(
            text,
            "intended_us,latency_us,lag_us,outcome\n1000.0,250.0,0.0,exact\n2000.0,300.0,0.0,failed\n"
        );
    }
}
