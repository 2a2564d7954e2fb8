//! Order of arrival of a worker's jobs and reservations, as numbers.

use std::time::Duration;

/// Numbers arrivals by their time, so that a reservation can count the wait before it. No number is given twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrivals {
    last: u64,
}

impl Arrivals {
    /// The number of an arrival: the owner's time in nanoseconds, or the next free number.
    pub fn number(&mut self, now: Duration) -> u64 {
        self.last = (self.last + 1).max(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_time_and_never_repeat() {
        let mut arrivals = Arrivals::default();
        let numbers = [5, 5, 5, 9].map(|nanos| arrivals.number(Duration::from_nanos(nanos)));
        assert_eq!(numbers, [5, 6, 7, 9]);
    }
}
