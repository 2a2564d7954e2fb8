//! Load of a pool: jobs started, or queries arrived, over the last eight slices of time.
//!
//! Only regular work counts, at the price of a typical job. Utilisation is about the instances that the load
//! needs, not about the current slowness of some of them.

use std::time::Duration;

use crate::api::Time;

const SLICES: usize = 8;

/// Starts per slice of so many milliseconds, in a ring.
#[derive(Debug, Default)]
pub(crate) struct Load<const MS: u64> {
    starts: [u32; SLICES],
    /// Starts in all slices but the one that is being filled.
    before: u32,
    /// The slice that is being filled.
    current: u64,
    first: Option<u64>,
}

impl<const MS: u64> Load<MS> {
    const SLICE: u64 = MS * 1_000_000;

    /// Notes a started job.
    pub(crate) fn note(&mut self, now: Time) {
        self.advance(now);
        self.starts[place(self.current)] += 1;
        self.first.get_or_insert(self.current);
    }

    /// Slots that the recent load keeps busy if a job takes `typical`.
    pub(crate) fn busy(&self, now: Time, typical: Duration) -> f64 {
        self.count(now).1 * typical.as_secs_f64() * 1e9
    }

    /// The recent starts, and those of a nanosecond.
    pub(crate) fn count(&self, now: Time) -> (u32, f64) {
        let Some(first) = self.first else { return (0, 0.0) };
        let slice = (now.as_nanos() / Self::SLICE).max(self.current);
        // The current slice is left out unless it is the only one.
        let whole = (slice - first).min(SLICES as u64 - 1);
        let starts = if whole == 0 { self.starts[place(self.current)] } else { self.before_slice(slice) };
        (starts, f64::from(starts) / (whole.max(1) * Self::SLICE) as f64)
    }

    /// Starts in the counted slices before this one.
    fn before_slice(&self, slice: u64) -> u32 {
        if slice == self.current {
            return self.before;
        }
        let kept = (slice + 1).saturating_sub(SLICES as u64)..=self.current;
        kept.map(|old| self.starts[place(old)]).sum()
    }

    fn advance(&mut self, now: Time) {
        let slice = now.as_nanos() / Self::SLICE;
        if slice <= self.current {
            return;
        }
        let passed = (slice - self.current).min(SLICES as u64);
        for step in 1..=passed {
            self.starts[place(slice - passed + step)] = 0;
        }
        self.current = slice;
        self.before = self.starts.iter().sum();
    }
}

/// The place of a slice in the ring.
fn place(slice: u64) -> usize {
    (slice % SLICES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_moments_count_and_older_ones_do_not() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let mut load = Load::<50>::default();
        let typical = Duration::from_millis(20);
        assert_eq!(load.busy(at(0), typical), 0.0);
        (0..1000).for_each(|ms| load.note(at(ms)));
        let busy = load.busy(at(1000), typical);
        assert!((busy - 20.0).abs() < 0.1, "a start per ms of 20 ms each keeps 20 busy, not {busy}");
        assert_eq!(load.busy(at(1500), typical), 0.0);
    }
}
