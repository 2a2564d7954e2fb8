//! What a run recorded: every latency in time order, from the intended send time, and their distribution.

use std::time::Duration;

use hdrhistogram::Histogram;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The deployed model's own prediction.
    Exact,
    /// A reconstruction.
    Reconstructed,
    /// An exact prediction from a duplicate.
    Hedged,
    /// The model's default answer.
    Default,
    /// No answer.
    Failed,
}

/// One request's end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Intended send time since the start of the run.
    pub intended: Duration,
    /// From the intended send time to the answer.
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

/// The longest latency that is told apart; longer ones count as this.
const LONGEST: Duration = Duration::from_secs(3600);

impl Recorder {
    /// An empty recorder with room for `expected` samples.
    pub fn new(expected: usize) -> Self {
        let latencies = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3);
        Self {
            samples: Vec::with_capacity(expected),
            latencies: latencies.unwrap_or_else(|_| unreachable!("the bounds are constants")),
        }
    }

    /// Records one request. A failure counts with the time it took, so that errors cannot make a tail look short.
    pub fn record(&mut self, sample: Sample) {
        self.latencies.saturating_record(sample.latency.as_nanos().min(u128::from(u64::MAX)) as u64);
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

    /// Share of samples with this outcome; zero of nothing.
    pub fn share(&self, outcome: Outcome) -> f64 {
        let count = self.samples.iter().filter(|sample| sample.outcome == outcome).count();
        count as f64 / self.samples.len().max(1) as f64
    }

    /// The latency that this share of the samples does not exceed (to three digits).
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.latencies.value_at_quantile(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(intended_ms: u64, latency_us: u64, outcome: Outcome) -> Sample {
        let (intended, latency) = (Duration::from_millis(intended_ms), Duration::from_micros(latency_us));
        Sample { intended, latency, lag: Duration::ZERO, outcome }
    }

    #[test]
    fn quantiles_are_of_all_samples_and_samples_come_back_in_time_order() {
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
}
