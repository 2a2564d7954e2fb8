//! Time of a run: nanoseconds since its start, real or virtual.
//!
//! A moment means the same to a worker (time since the experiment began) and to the simulator (virtual time). It is a
//! plain integer and not a [`Duration`], because the simulator computes several for each query.

use std::ops::Add;
use std::time::Duration;

/// A moment of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// The start of the run.
    pub const START: Moment = Moment(0);
    /// After every run: the time of events that never happen.
    pub const NEVER: Moment = Moment(u64::MAX);

    /// The moment this many nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Moment(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment this long after the start.
    pub fn after(start: Duration) -> Self {
        Moment::START + start
    }

    /// Nanoseconds from `earlier` until this moment; zero if it is not earlier.
    pub const fn nanos_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment this many nanoseconds later, rounded down; a sum that does not fit is [`Moment::NEVER`].
    pub fn later(self, nanos: f64) -> Self {
        Moment(self.0.saturating_add(nanos as u64))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}
