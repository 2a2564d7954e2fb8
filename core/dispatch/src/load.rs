//! How busy a pool's own work keeps it: jobs started over the last 400 ms.
//!
//! Only work that clients asked for counts, and at the price of a typical job: utilisation is about how many
//! instances the load needs, not about how slow some are just now.

use std::time::Duration;

use super::Time;

const SLICES: usize = 8;
const SLICE: u64 = 50_000_000;

/// Starts per slice of time, in a ring.
#[derive(Debug, Default)]
pub(super) struct Load {
    starts: [u32; SLICES],
    /// Starts in all slices but the one that is being filled.
    before: u32,
    /// The slice that is being filled.
    current: u64,
    first: Option<u64>,
}

impl Load {
    /// A job was started.
    pub(super) fn note(&mut self, now: Time) {
        self.advance(now);
        self.starts[(self.current % SLICES as u64) as usize] += 1;
        self.first.get_or_insert(self.current);
    }

    /// Instances (slots of them) that the recent load keeps busy when a job takes `typical`.
    pub(super) fn busy(&mut self, now: Time, typical: Duration) -> f64 {
        self.advance(now);
        let Some(first) = self.first else { return 0.0 };
        // The slice being filled is left out, unless there is no other.
        let whole = (self.current - first).min(SLICES as u64 - 1);
        let starts =
            if whole == 0 { self.starts[(self.current % SLICES as u64) as usize] } else { self.before };
        f64::from(starts) * typical.as_secs_f64() * 1e9 / (whole.max(1) * SLICE) as f64
    }

    fn advance(&mut self, now: Time) {
        let slice = now.as_nanos() / SLICE;
        if slice <= self.current {
            return;
        }
        let passed = (slice - self.current).min(SLICES as u64);
        for step in 1..=passed {
            self.starts[((slice - passed + step) % SLICES as u64) as usize] = 0;
        }
        self.current = slice;
        self.before = self.starts.iter().sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_moments_count_and_older_ones_do_not() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let mut load = Load::default();
        let typical = Duration::from_millis(20);
        assert_eq!(load.busy(at(0), typical), 0.0);
        (0..1000).for_each(|ms| load.note(at(ms)));
        let busy = load.busy(at(1000), typical);
        assert!((busy - 20.0).abs() < 0.1, "a start per ms of 20 ms each keeps 20 busy, not {busy}");
        assert_eq!(load.busy(at(1500), typical), 0.0);
    }
}
