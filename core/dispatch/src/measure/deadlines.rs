//! The time that queries have until their deadlines.
//!
//! Problem: clients of a pool differ. The latest query alone would let one impatient client end the batches of all
//! others, or a patient one make queries wait beyond their deadline.
//!
//! Choice: batches are as long as the geometric mean allows, which few very short or long times change little. A wait
//! for company is as long as the shortest recent one allows.

use std::time::Duration;

/// Queries that the mean remembers.
const WINDOW: f64 = 16.0;

/// The growth of the shortest time with each query.
const GROWTH: f64 = 1.0 + 1.0 / 64.0;

/// Nanoseconds that the latest queries had until their deadlines. Unlimited at first.
#[derive(Debug)]
pub(crate) struct Deadlines {
    /// The mean of the logarithms.
    log: f64,
    shortest: f64,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { log: f64::INFINITY, shortest: f64::INFINITY }
    }
}

impl Deadlines {
    /// Notes a query.
    pub(crate) fn note(&mut self, within: Duration) {
        let nanos = within.as_nanos().max(1) as f64;
        self.log =
            if self.log.is_finite() { self.log + (nanos.ln() - self.log) / WINDOW } else { nanos.ln() };
        self.shortest = nanos.min(self.shortest * GROWTH);
    }

    /// The typical time.
    pub(crate) fn typical(&self) -> f64 {
        self.log.exp()
    }

    /// The shortest recent time.
    pub(crate) fn shortest(&self) -> f64 {
        self.shortest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_short_times_change_the_mean_little_and_limit_waits() {
        let mut deadlines = Deadlines::default();
        assert_eq!((deadlines.typical(), deadlines.shortest()), (f64::INFINITY, f64::INFINITY));
        (0..100).for_each(|_| deadlines.note(Duration::from_secs(1)));
        deadlines.note(Duration::from_millis(10));
        assert!(deadlines.typical() > 0.7e9 && deadlines.shortest() == 1e7);
        (0..300).for_each(|_| deadlines.note(Duration::from_secs(1)));
        assert!(deadlines.typical() > 0.99e9 && deadlines.shortest() == 1e9, "it is forgotten");
        (0..100).for_each(|_| deadlines.note(Duration::ZERO));
        assert!(deadlines.typical() < 2.0 && deadlines.shortest() == 1.0);
        deadlines.note(Duration::MAX);
        assert!(deadlines.typical().is_finite());
    }
}
