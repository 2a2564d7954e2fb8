//! Time as a plain number: nanoseconds since an origin that the caller chooses, real or virtual.
//!
//! It is not a [`Duration`], because the dispatcher and the simulator compute several times for each query.

use std::ops::Add;
use std::time::Duration;

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// Later than every event.
    pub const MAX: Time = Time(u64::MAX);

    /// The moment so many nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` until this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The same in nanoseconds.
    pub const fn nanos_since(self, earlier: Time) -> f64 {
        self.0.saturating_sub(earlier.0) as f64
    }

    /// The moment so many nanoseconds earlier; the origin if there is none.
    #[must_use]
    pub fn earlier(self, nanos: f64) -> Time {
        Time(self.0.saturating_sub(nanos as u64))
    }

    /// The moment so many nanoseconds later; [`Time::MAX`] if that overflows or is infinite.
    #[must_use]
    pub fn later(self, nanos: f64) -> Time {
        // The cast saturates, and an infinite rest means never.
        Time(self.0.saturating_add(nanos as u64))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}
