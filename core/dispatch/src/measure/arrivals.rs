//! Rate of arrivals: steady while the load is, and quick to follow a jump.
//!
//! Problem: sizes of batches near capacity depend on a few percent of the rate. Two seconds of 150 queries a second are
//! uncertain by six percent, and sixteen seconds follow a jump too late.
//!
//! Choice: the long window counts, until the short one differs by more than chance explains.

use crate::api::Time;
use crate::measure::load::Load;

/// Standard deviations by which the windows may differ by chance.
const CHANCE: f64 = 3.0;

/// Arrived queries over the last two and the last sixteen seconds.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    short: Load<250>,
    long: Load<2000>,
}

impl Arrivals {
    /// Notes an arrival.
    pub(crate) fn note(&mut self, now: Time) {
        self.short.note(now);
        self.long.note(now);
    }

    /// The arrivals of a nanosecond.
    pub(crate) fn rate(&self, now: Time) -> f64 {
        let ((few, short), (_, long)) = (self.short.count(now), self.long.count(now));
        let chance = CHANCE * f64::from(few.max(1)).sqrt().recip() * short;
        if (short - long).abs() > chance { short } else { long }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arrivals of a second, after so many seconds with one every so many milliseconds.
    fn rate(phases: &[(u64, u64)]) -> f64 {
        let (mut arrivals, mut ms) = (Arrivals::default(), 0);
        for (seconds, every) in phases {
            let until = ms + seconds * 1000;
            while ms < until {
                arrivals.note(Time::from_nanos(ms * 1_000_000));
                ms += every;
            }
        }
        arrivals.rate(Time::from_nanos(ms * 1_000_000)) * 1e9
    }

    #[test]
    fn rate_is_steady_and_follows_a_jump() {
        assert!((rate(&[(20, 5)]) / 200.0 - 1.0).abs() < 0.01);
        assert!((rate(&[(20, 5), (2, 1)]) / 1000.0 - 1.0).abs() < 0.01, "two seconds after a jump");
        assert!((rate(&[(20, 1), (2, 5)]) / 200.0 - 1.0).abs() < 0.01, "and after a fall");
        assert_eq!(Arrivals::default().rate(Time::ZERO), 0.0);
    }
}
