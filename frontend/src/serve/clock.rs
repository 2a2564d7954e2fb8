//! Between the dispatcher's time and the runtime's.

use std::time::Duration;

use tokio::time::Instant;

use parm_dispatch::Time;

/// Which timers wake the dispatcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timers {
    /// A thread of our own, some tens of microseconds late at most: grace and hedge delays are a few milliseconds, and
    /// tokio's timers overshoot by one.
    #[default]
    Precise,
    /// The runtime's timers: for runtimes whose time is paused or simulated.
    Runtime,
}

/// Counts from the moment it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Now, to the dispatcher.
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    /// A moment of the dispatcher's, to the runtime. Moments too far to be told are a year away.
    pub(crate) fn instant(&self, at: Time) -> Instant {
        let far = Duration::from_secs(365 * 24 * 3600);
        self.origin + at.since(Time::ZERO).min(self.origin.elapsed() + far)
    }
}
