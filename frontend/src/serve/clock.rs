//! Conversion between the dispatcher's time and the runtime's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinError;
use tokio::time::Instant;

use parm_dispatcher::Time;

/// Timers that wake the dispatcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timers {
    /// A dedicated thread, at most tens of microseconds late: grace periods and hedge delays are a few milliseconds,
    /// and tokio's timers are one millisecond late.
    #[default]
    Precise,
    /// The runtime's timers: for runtimes with paused or simulated time.
    Runtime,
    /// Deterministic timers for random schedules, in a runtime of one thread with paused time: the same seed gives the
    /// same run. Alarms are set up to five milliseconds late, in any order, as by threads that are preempted between an
    /// event and its effects.
    Simulated {
        /// Seed of all random numbers.
        seed: u64,
    },
}

impl Timers {
    /// Runs blocking work on another thread. With simulated time it runs inline, because the order of threads would
    /// differ between runs.
    pub(crate) async fn offload<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        match self {
            Self::Simulated { .. } => Ok(work()),
            Self::Precise | Self::Runtime => tokio::task::spawn_blocking(work).await,
        }
    }

    /// Seed of random numbers. Frontends started together should not probe in step.
    pub(crate) fn seed(self) -> u64 {
        use std::hash::{BuildHasher, RandomState};
        match self {
            Self::Simulated { seed } => seed,
            Self::Precise | Self::Runtime => RandomState::new().hash_one(std::process::id()),
        }
    }
}

/// Measures time since its creation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    /// Time of creation since 1970.
    unix: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: Instant::now(), unix }
    }

    /// The dispatcher's time now.
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    /// Converts the runtime's time to the dispatcher's. Times before the clock's creation are its start.
    pub(crate) fn time_of(&self, at: Instant) -> Time {
        Time::ZERO + at.saturating_duration_since(self.origin)
    }

    /// Converts the dispatcher's time to milliseconds since 1970. It never goes back, even if the system's clock is
    /// changed meanwhile.
    pub(crate) fn wall_ms(&self, at: Time) -> u64 {
        (self.unix + at.since(Time::ZERO)).as_millis() as u64
    }

    /// Converts the dispatcher's time to the runtime's. Times beyond its range are a year ahead.
    pub(crate) fn instant(&self, at: Time) -> Instant {
        let far = Duration::from_secs(365 * 24 * 3600);
        self.origin + at.since(Time::ZERO).min(self.origin.elapsed() + far)
    }
}
