//! Times of batches that have an instance to themselves, and the resulting limit of queued batches.
//!
//! The median counts only batches that started on an empty instance. A time measured among other batches would
//! contain theirs, so an instance would seem slower the more it was given.

use std::time::Duration;

use crate::measure::quantile::Quantiles;

/// Most batches that an instance may hold for each slot: enough to keep both ends busy.
const MOST: u16 = 16;

/// If fewer fit, queueing ahead is off: waiting behind a slow batch would cost more than the network does.
const FEWEST: u16 = 4;

/// Times of batches that had an instance to themselves.
pub(crate) struct Alone {
    times: Quantiles,
    /// Batches that an instance may hold for each slot.
    pub(crate) allowed: u16,
}

impl Default for Alone {
    fn default() -> Self {
        Self { times: Quantiles::new(0.5), allowed: 1 }
    }
}

impl Alone {
    pub(crate) fn add(&mut self, took: Duration, ahead: Duration) {
        self.times.add(took);
        self.allow(ahead);
    }

    /// Sets the work that an instance may hold.
    pub(crate) fn allow(&mut self, ahead: Duration) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let allowed = |median: Duration| nanos(ahead) / nanos(median).max(1);
        let allowed = self.times.reading().map_or(1, |reading| allowed(reading.median));
        let allowed = u16::try_from(allowed).unwrap_or(MOST).clamp(1, MOST);
        self.allowed = if allowed < FEWEST { 1 } else { allowed };
    }

    /// The median, if instances may hold more than one batch for each slot.
    pub(crate) fn median(&self) -> Option<Duration> {
        self.times.reading().filter(|_| self.allowed > 1).map(|reading| reading.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(micros: u64, ahead: u64) -> u16 {
        let mut alone = Alone::default();
        (0..32).for_each(|_| alone.add(Duration::from_micros(micros), Duration::from_micros(ahead)));
        alone.allowed
    }

    #[test]
    fn an_instance_is_given_what_it_does_in_so_long() {
        assert_eq!(allowed(20_000, 1000), 1, "a model of milliseconds has one");
        assert_eq!((allowed(1500, 1000), allowed(300, 1000)), (1, 1));
        assert_eq!(allowed(240, 1000), 4);
        assert_eq!(allowed(10, 1000), MOST);
        assert_eq!(allowed(0, 1000), MOST);
        assert_eq!(allowed(10, 0), 1, "where it is off");
    }

    #[test]
    fn nothing_is_given_ahead_before_times_are_known() {
        let mut alone = Alone::default();
        (0..15).for_each(|_| alone.add(Duration::from_micros(10), Duration::from_millis(1)));
        assert_eq!((alone.allowed, alone.median()), (1, None));
        alone.add(Duration::from_micros(10), Duration::from_millis(1));
        assert_eq!(alone.allowed, MOST);
        alone.allow(Duration::ZERO);
        assert_eq!(alone.allowed, 1);
    }
}
