//! Ages at which connections end, spread by a tenth around the configured age.
//!
//! Connections that were opened together must not end together. Multiples of the golden ratio are spread evenly for any
//! number of connections, unlike random numbers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The fractional part of the golden ratio, of 2^32.
const GOLDEN: u32 = 0x9e37_79b9;

/// The bound, and the connections so far.
#[derive(Debug)]
pub(crate) struct Ages {
    most: Duration,
    taken: AtomicU32,
}

impl Ages {
    /// Zero means no limit.
    pub(crate) fn new(most: Duration) -> Self {
        Self { most, taken: AtomicU32::new(0) }
    }

    /// The age at which the next connection ends.
    pub(crate) fn next(&self) -> Option<Duration> {
        if self.most.is_zero() {
            return None;
        }
        let share = self.taken.fetch_add(GOLDEN, Ordering::Relaxed);
        Some(self.most.mul_f64(0.9 + 0.2 * f64::from(share) / f64::from(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_spread_around_the_bound() {
        assert_eq!(Ages::new(Duration::ZERO).next(), None);
        let ages = Ages::new(Duration::from_secs(100));
        let mut seconds: Vec<f64> = (0..40).map(|_| ages.next().unwrap().as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        assert!(seconds[0] >= 90.0 && seconds[39] <= 110.0, "{seconds:?}");
        assert!(seconds.windows(2).all(|pair| pair[1] - pair[0] < 1.5), "{seconds:?}");
    }
}
