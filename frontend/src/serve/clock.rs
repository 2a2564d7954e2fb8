//! Between the dispatcher's time and the runtime's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinError;
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
    /// The same, with nothing left to threads and chance, so that the same seed is the same run: for random schedules in
    /// a runtime of one thread whose time is paused. Alarms are set up to five milliseconds late, in any order, as by
    /// threads that are preempted between an event and its effects.
    Simulated {
        /// Of all chance.
        seed: u64,
    },
}

impl Timers {
    /// Runs what may block: beside the runtime, unless its time is simulated, for then another thread would end first
    /// in one run and last in the next.
    pub(crate) async fn offload<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        match self {
            Self::Simulated { .. } => Ok(work()),
            Self::Precise | Self::Runtime => tokio::task::spawn_blocking(work).await,
        }
    }

    /// What chance starts from. Frontends started together should not probe in step.
    pub(crate) fn seed(self) -> u64 {
        use std::hash::{BuildHasher, RandomState};
        match self {
            Self::Simulated { seed } => seed,
            Self::Precise | Self::Runtime => RandomState::new().hash_one(std::process::id()),
        }
    }
}

/// Counts from the moment it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    /// When that was, since 1970.
    unix: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: Instant::now(), unix }
    }

    /// Now, to the dispatcher.
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    /// A moment of the runtime's, to the dispatcher. Moments before the clock was made are its first.
    pub(crate) fn time_of(&self, at: Instant) -> Time {
        Time::ZERO + at.saturating_duration_since(self.origin)
    }

    /// A moment of the dispatcher's, to people: milliseconds since 1970. It never goes back, whatever is done to the
    /// machine's own clock meanwhile.
    pub(crate) fn wall_ms(&self, at: Time) -> u64 {
        (self.unix + at.since(Time::ZERO)).as_millis() as u64
    }

    /// A moment of the dispatcher's, to the runtime. Moments too far to be told are a year away.
    pub(crate) fn instant(&self, at: Time) -> Instant {
        let far = Duration::from_secs(365 * 24 * 3600);
        self.origin + at.since(Time::ZERO).min(self.origin.elapsed() + far)
    }
}
