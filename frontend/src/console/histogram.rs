//! Histogram of times with buckets fine enough for extreme quantiles.
//!
//! A bucket is a sixteenth of an octave: 4.4 %. The buckets of the metrics are 50 % wide each, too coarse to tell a
//! p99.9 of 24 ms from one of 36 ms. Counts only grow, and wrap; readers subtract two moments.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Lower bound of the first bucket, which also holds all shorter times.
pub(super) const FIRST_US: u32 = 64;

/// Buckets per octave.
pub(super) const PER_OCTAVE: u32 = 16;

/// Last bucket, beyond an hour.
const LAST: usize = 400;

/// Counts by bucket, allocated with the first time.
#[derive(Debug, Default)]
pub(super) struct Histogram(OnceLock<Box<[AtomicU32; LAST + 1]>>);

/// Counts at some moment; empty before the first.
pub(super) type BucketCounts = Vec<u32>;

impl Histogram {
    /// Counts `count` times of this length.
    pub(super) fn note(&self, took: Duration, count: u32) {
        let counts = self.0.get_or_init(|| Box::new(array::from_fn(|_| AtomicU32::new(0))));
        counts[bucket(took)].fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> BucketCounts {
        let counts = self.0.get().map(|counts| counts.iter().map(|count| count.load(Ordering::Relaxed)));
        counts.map(Iterator::collect).unwrap_or_default()
    }
}

/// Counts between two moments: bucket, count, bucket, count and so on, ascending.
pub(super) fn between(before: &[u32], after: &[u32]) -> Vec<u32> {
    let earlier = |bucket: usize| before.get(bucket).copied().unwrap_or(0);
    let grown = after.iter().enumerate().map(|(bucket, count)| (bucket, count.wrapping_sub(earlier(bucket))));
    grown.filter(|(_, count)| *count > 0).flat_map(|(bucket, count)| [bucket as u32, count]).collect()
}

fn bucket(took: Duration) -> usize {
    let octaves = (took.as_secs_f64() * 1e6 / f64::from(FIRST_US)).log2();
    // Times below the first bucket count there, including zero.
    ((octaves * f64::from(PER_OCTAVE)).floor().max(0.0) as usize).min(LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_falls_into_bucket_that_starts_at_or_before_it() {
        let start = |bucket: f64| Duration::from_secs_f64(64e-6 * (bucket / 16.0).exp2() * 1.000001);
        for (took, expected) in [
            (Duration::ZERO, 0),
            (Duration::from_micros(64), 0),
            (start(1.0), 1),
            (start(133.0), 133),
            (Duration::from_secs(3600 * 24), 400),
        ] {
            assert_eq!(bucket(took), expected, "{took:?}");
        }
    }

    #[test]
    fn only_counts_since_the_last_moment_are_sent() {
        let histogram = Histogram::default();
        assert_eq!(histogram.counts(), BucketCounts::new());
        histogram.note(Duration::from_micros(64), 3);
        let before = histogram.counts();
        histogram.note(Duration::from_micros(128), 2);
        assert_eq!(between(&before, &histogram.counts()), [16, 2]);
        assert_eq!(between(&[], &histogram.counts()), [0, 3, 16, 2]);
    }
}
