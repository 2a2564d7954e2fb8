//! Times, counted finely enough that quantiles far out can be read from them.
//!
//! A bucket is a sixteenth of a power of two: 4.4 %. Those of metrics are half as much again each, too wide to tell a p99.9
//! of 24 ms from one of 36. BucketCounts only ever grow and wrap; whoever wants those of a second subtracts.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Where the first bucket starts; it holds all below, too.
pub(super) const FIRST_US: u32 = 64;

/// Buckets of each power of two.
pub(super) const PER_OCTAVE: u32 = 16;

/// The last bucket, beyond an hour.
const LAST: usize = 400;

/// BucketCounts by bucket. Those of an outcome that never came take no room.
#[derive(Debug, Default)]
pub(super) struct Histogram(OnceLock<Box<[AtomicU32; LAST + 1]>>);

/// BucketCounts as they were at some moment; empty before the first.
pub(super) type BucketCounts = Vec<u32>;

impl Histogram {
    /// So many took so long.
    pub(super) fn note(&self, took: Duration, count: u32) {
        let counts = self.0.get_or_init(|| Box::new(array::from_fn(|_| AtomicU32::new(0))));
        counts[bucket(took)].fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> BucketCounts {
        let counts = self.0.get().map(|counts| counts.iter().map(|count| count.load(Ordering::Relaxed)));
        counts.map(Iterator::collect).unwrap_or_default()
    }
}

/// What came between two moments: bucket, count, bucket, count, and so on in ascending order.
pub(super) fn between(before: &[u32], after: &[u32]) -> Vec<u32> {
    let earlier = |bucket: usize| before.get(bucket).copied().unwrap_or(0);
    let grown = after.iter().enumerate().map(|(bucket, count)| (bucket, count.wrapping_sub(earlier(bucket))));
    grown.filter(|(_, count)| *count > 0).flat_map(|(bucket, count)| [bucket as u32, count]).collect()
}

fn bucket(took: Duration) -> usize {
    let octaves = (took.as_secs_f64() * 1e6 / f64::from(FIRST_US)).log2();
    // What is below the first counts there, zero too.
    ((octaves * f64::from(PER_OCTAVE)).floor().max(0.0) as usize).min(LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_bucket_that_starts_at_or_before_them() {
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
    fn only_what_came_since_is_told() {
        let histogram = Histogram::default();
        assert_eq!(histogram.counts(), BucketCounts::new());
        histogram.note(Duration::from_micros(64), 3);
        let before = histogram.counts();
        histogram.note(Duration::from_micros(128), 2);
        assert_eq!(between(&before, &histogram.counts()), [16, 2]);
        assert_eq!(between(&[], &histogram.counts()), [0, 3, 16, 2]);
    }
}
