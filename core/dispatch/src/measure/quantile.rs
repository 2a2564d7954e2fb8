//! Running quantiles of times: the current meaning of "slow".
//!
//! Problem: hedging, ejection and grace compare the time of every job with the median or a high quantile of recent
//! times, and service times shift with load, batch sizes and neighbours.
//!
//! Choice: a histogram with 32 linear buckets per power of two (a reading is within 1.6 %) from about a
//! microsecond to an hour, 4 KB. Its counts are halved when it holds 4096 samples, so old ones fade. Quantiles are
//! read once per 32 samples and kept in between; adding takes two increments.
//!
//! Rejected: a window of the last n samples (sorting or an order tree per job); P-square markers (they fail when
//! the distribution shifts); an exponentially weighted mean (a straggler moves a mean, and stragglers are the
//! point). Decay is by samples, not by time, so an idle pool keeps its values.
//!
//! Cold start: before 16 samples the reading is `None`, so jobs are neither hedged nor called slow. Only jobs that
//! returned nothing are compared with a rough median of four samples; otherwise a hung instance of a quiet pool
//! would never be found.

use std::time::Duration;

const SUB_BITS: u32 = 5;
const SUBS: usize = 1 << SUB_BITS;
/// Times below 2^10 ns share the first buckets; 2^42 ns is over an hour.
const LOWEST: u32 = 10;
const HIGHEST: u32 = 42;
const BUCKETS: usize = (HIGHEST - LOWEST) as usize * SUBS;
const FADE_AT: u32 = 4096;
const REFRESH_EVERY: u32 = 32;
const COLD_UNTIL: u64 = 16;
const ROUGH_FROM: u64 = 4;

/// A histogram of recent times.
pub(crate) struct Quantiles {
    counts: Box<[u32; BUCKETS]>,
    /// The lowest bucket with a count, where readings start.
    lowest: usize,
    total: u32,
    seen: u64,
    stale: u32,
    high: f64,
    reading: Option<Reading>,
}

/// The quantiles that policies use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) median: Duration,
    /// The high quantile of the estimator.
    pub(crate) high: Duration,
}

impl Quantiles {
    /// `high` is the quantile that is read next to the median.
    pub(crate) fn new(high: f64) -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            lowest: BUCKETS,
            total: 0,
            seen: 0,
            stale: 0,
            high,
            reading: None,
        }
    }

    /// Sets the high quantile.
    pub(crate) fn set_high(&mut self, high: f64) {
        self.high = high;
        self.reading = self.reading.map(|_| self.read());
    }

    pub(crate) fn add(&mut self, time: Duration) {
        let bucket = bucket(time);
        self.counts[bucket] += 1;
        self.lowest = self.lowest.min(bucket);
        self.total += 1;
        self.seen += 1;
        self.stale += 1;
        if self.total >= FADE_AT {
            self.fade();
        }
        if self.seen >= COLD_UNTIL && (self.stale >= REFRESH_EVERY || self.reading.is_none()) {
            self.reading = Some(self.read());
            self.stale = 0;
        }
    }

    /// The reading; `None` until there are 16 samples.
    pub(crate) fn reading(&self) -> Option<Reading> {
        self.reading
    }

    /// The median of at least four samples.
    pub(crate) fn rough_median(&self) -> Option<Duration> {
        let few = || (self.seen >= ROUGH_FROM).then(|| self.quantile(0.5));
        self.reading.map(|reading| reading.median).or_else(few)
    }

    /// Any other quantile, computed now.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let most = (f64::from(self.total) * share).ceil() as u32;
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= most.max(1)
        });
        middle(found.unwrap_or(0))
    }

    fn fade(&mut self) {
        self.total = 0;
        for count in self.counts.iter_mut() {
            *count /= 2;
            self.total += *count;
        }
        self.lowest = self.counts.iter().position(|count| *count > 0).unwrap_or(BUCKETS);
    }

    fn read(&self) -> Reading {
        let total = f64::from(self.total);
        let (half, most) = ((total * 0.5).ceil() as u32, (total * self.high).ceil() as u32);
        let (mut below, mut median, mut high) = (0, None, None);
        for (index, count) in self.counts.iter().enumerate().skip(self.lowest.min(BUCKETS)) {
            below += count;
            if median.is_none() && below >= half.max(1) {
                median = Some(index);
            }
            if high.is_none() && below >= most.max(1) {
                high = Some(index);
            }
            // Either may be found first.
            if median.is_some() && high.is_some() {
                break;
            }
        }
        let (median, high) = (median.unwrap_or(0), high.unwrap_or(0));
        Reading { median: middle(median), high: middle(high.max(median)) }
    }
}

fn bucket(time: Duration) -> usize {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).clamp(1 << LOWEST, (1 << HIGHEST) - 1);
    let octave = nanos.ilog2();
    let within = (nanos >> (octave - SUB_BITS)) as usize & (SUBS - 1);
    (octave - LOWEST) as usize * SUBS + within
}

fn middle(index: usize) -> Duration {
    let (octave, within) = (LOWEST + (index / SUBS) as u32, (index % SUBS) as u64);
    let width = 1u64 << (octave - SUB_BITS);
    Duration::from_nanos((1u64 << octave) + within * width + width / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(times: impl Iterator<Item = u64>, median_us: f64, high_us: f64) {
        let mut quantiles = Quantiles::new(0.9);
        times.for_each(|us| quantiles.add(Duration::from_micros(us)));
        let reading = quantiles.reading().expect("warm");
        for (is, want) in [(reading.median, median_us), (reading.high, high_us)] {
            let is = is.as_secs_f64() * 1e6;
            assert!((is / want - 1.0).abs() < 0.04, "{is} us, expected {want} us");
        }
    }

    #[test]
    fn readings_are_close_to_the_true_quantiles() {
        check((0..1024).map(|_| 20_000), 20_000.0, 20_000.0);
        check((0..3000).map(|i| 1 + i % 1000), 500.0, 900.0);
        check((0..3200).map(|i| if i % 5 == 0 { 100_000 } else { 2_000 }), 2_000.0, 100_000.0);
    }

    #[test]
    fn a_quantile_below_the_median_leaves_the_median_what_it_is() {
        let mut quantiles = Quantiles::new(0.01);
        (0..1024).for_each(|at| quantiles.add(Duration::from_micros(1000 + at)));
        let Reading { median, high } = quantiles.reading().expect("warm");
        assert!((median.as_secs_f64() / 1.5e-3 - 1.0).abs() < 0.04, "{median:?}");
        assert_eq!(high, median, "nothing counts as late before the half of all are in");
    }

    #[test]
    fn a_shift_is_followed_within_two_windows() {
        let fast = (0..50_000).map(|_| 1_000);
        check(fast.chain((0..u64::from(FADE_AT) * 2).map(|_| 9_000)), 9_000.0, 9_000.0);
    }

    #[test]
    fn nothing_is_read_while_cold() {
        let mut quantiles = Quantiles::new(0.9);
        (1..COLD_UNTIL).for_each(|_| quantiles.add(Duration::from_millis(1)));
        assert_eq!(quantiles.reading(), None);
        quantiles.add(Duration::from_millis(1));
        assert!(quantiles.reading().is_some());
    }

    #[test]
    fn times_out_of_range_count_at_the_ends() {
        check((0..64).map(|_| 0), 1.04, 1.04);
        check((0..64).map(|_| u64::MAX / 2000), 4.36e9, 4.36e9);
    }
}
