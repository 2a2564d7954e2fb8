//! The samples of a run in time order, counted from the intended send time, and their distribution.

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

/// The samples of a run and their histogram.
#[derive(Clone, Debug)]
pub struct Recorder {
    samples: Vec<Sample>,
    latencies: Histogram<u64>,
}

/// The longest latency that the histogram distinguishes; longer ones count as this.
const LONGEST: Duration = Duration::from_secs(3600);

impl Recorder {
    /// An empty recorder with room for `expected` samples.
    pub fn new(expected: usize) -> Self {
        Self { samples: Vec::with_capacity(expected), latencies: histogram() }
    }

    /// Records one request.
    pub fn record(&mut self, sample: Sample) {
        self.latencies.saturating_record(nanos(sample.latency));
        self.samples.push(sample);
    }

    /// The samples in the order of their intended send times.
    pub fn in_order(mut self) -> Vec<Sample> {
        self.samples.sort_by_key(|sample| sample.intended);
        self.samples
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns the share of samples with this outcome; zero if there are none.
    pub fn share(&self, outcome: Outcome) -> f64 {
        let count = self.samples.iter().filter(|sample| sample.outcome == outcome).count();
        count as f64 / self.samples.len().max(1) as f64
    }

    pub(crate) fn latencies(&self) -> &Histogram<u64> {
        &self.latencies
    }

    /// Returns the latency that this share of the samples does not exceed (to three digits).
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.latencies.value_at_quantile(share))
    }
}

/// An empty histogram of nanoseconds, to three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    let histogram = Histogram::new_with_bounds(1, nanos(LONGEST), 3);
    histogram.unwrap_or_else(|_| unreachable!("the bounds are constants"))
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
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
    use parm_random::Random;

    use super::*;
    use crate::statistics::bootstrap::quantile_of;

    fn sample(intended_ms: u64, latency_us: u64, outcome: Outcome) -> Sample {
        let (intended, latency) = (Duration::from_millis(intended_ms), Duration::from_micros(latency_us));
        Sample { intended, latency, lag: Duration::ZERO, outcome }
    }

    #[test]
    fn samples_are_returned_in_time_order() {
        let mut recorder = Recorder::new(1000);
        for i in (0..1000).rev() {
            let outcome = if i % 10 == 0 { Outcome::Reconstructed } else { Outcome::Exact };
            recorder.record(sample(i, i + 1, outcome));
        }
        let off = |share: f64, us: f64| (recorder.quantile(share).as_secs_f64() * 1e6 / us - 1.0).abs();
        assert!(off(0.5, 500.0) < 0.002 && off(0.999, 999.0) < 0.002);
        assert_eq!(recorder.share(Outcome::Reconstructed), 0.1);
        assert!(recorder.in_order().windows(2).all(|pair| pair[0].intended < pair[1].intended));
    }

    #[test]
    fn histogram_agrees_with_raw_samples_to_three_digits() {
        let mut draw = Random::of(7, [1]);
        let mut recorder = Recorder::new(50_000);
        let mut raw = Vec::new();
        for i in 0..50_000 {
            // Eight decades from microseconds to minutes, evenly by logarithm.
            let latency = Duration::from_secs_f64(10f64.powf(8.0 * draw.uniform() - 6.0));
            recorder.record(Sample { latency, ..sample(i, 0, Outcome::Exact) });
            raw.push(latency.as_secs_f64());
        }
        for share in [0.001, 0.5, 0.9, 0.99, 0.999, 0.9999] {
            let (histogram, exact) = (recorder.quantile(share).as_secs_f64(), quantile_of(&mut raw, share));
            assert!((histogram / exact - 1.0).abs() < 1e-3, "{share}: {histogram} for {exact}");
        }
    }

    #[test]
    fn samples_are_written_one_per_line_in_microseconds() {
        let mut file = Vec::new();
        write(&[sample(1, 250, Outcome::Exact), sample(2, 300, Outcome::Failed)], &mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert_eq!(
            text,
            "intended_us,latency_us,lag_us,outcome\n1000.0,250.0,0.0,exact\n2000.0,300.0,0.0,failed\n"
        );
    }
}
