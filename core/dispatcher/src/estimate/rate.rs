//! The rate of arrivals over the last second or two.

use crate::Time;

/// A second.
const SPAN: u64 = 1_000_000_000;

/// Arrivals of the span that is being filled, and of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    since: u64,
    now: u32,
    before: u32,
    /// How long the span before lasted.
    lasted: u64,
}

impl Rate {
    pub(crate) fn note(&mut self, now: Time) {
        let now = now.as_nanos();
        if now.saturating_sub(self.since) >= SPAN {
            (self.before, self.lasted) = (self.now, now - self.since);
            (self.now, self.since) = (0, now);
        }
        self.now += 1;
    }

    /// Arrivals in a nanosecond.
    pub(crate) fn per_nano(&self, now: Time) -> f64 {
        let span = now.as_nanos().saturating_sub(self.since) + self.lasted;
        f64::from(self.now + self.before) / span.max(SPAN / 16) as f64
    }
}
