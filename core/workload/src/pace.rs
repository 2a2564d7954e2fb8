//! The pace of an instance over time: a measured series of factors, replayed from the beginning when it ends.

use std::time::Duration;

use crate::clock::Moment;
use crate::spans::Effect;

/// A series of factors on one instance.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    factors: Vec<f64>,
    /// Nanoseconds that a factor lasts.
    step: u64,
    /// All factors are the same.
    steady: bool,
}

impl Pace {
    /// Creates the pace; the series must not be empty.
    pub(crate) fn new(factors: Vec<f64>, step: Duration) -> Self {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        let steady = factors.iter().all(|factor| *factor == factors[0]);
        Self { factors, step, steady }
    }

    /// Returns the effect at a moment, and until when it does not change.
    pub(crate) fn look(&self, at: Moment) -> (Option<Effect>, Moment) {
        let number = at.as_nanos() / self.step;
        let factor = self.factors[(number % self.factors.len() as u64) as usize];
        let end = if self.steady { u64::MAX } else { (number + 1).saturating_mul(self.step) };
        (Some(Effect::Slow(factor)), Moment::from_nanos(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_is_replayed_step_by_step_from_the_beginning_again() {
        let pace = Pace::new(vec![1.0, 2.0, 4.0], Duration::from_millis(10));
        let at = |ms| Moment::after(Duration::from_millis(ms));
        let slow = |factor, until| (Some(Effect::Slow(factor)), at(until));
        assert_eq!(pace.look(at(0)), slow(1.0, 10));
        assert_eq!(pace.look(at(19)), slow(2.0, 20));
        assert_eq!(pace.look(at(20)), slow(4.0, 30));
        assert_eq!(pace.look(at(35)), slow(1.0, 40));
        let steady = Pace::new(vec![2.4], Duration::from_millis(10));
        assert_eq!(steady.look(at(123)), (Some(Effect::Slow(2.4)), Moment::NEVER));
    }
}
