//! Conversion between the dispatcher's time and the runtime's.

use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{io, thread};

use parking_lot::{Condvar, Mutex};
use parm_dispatcher::Time;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::lifelines::Lifelines;

/// Timers that wake the dispatcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timers {
    /// A dedicated thread, at most tens of microseconds late: grace periods and hedge delays are a few milliseconds,
    /// and tokio's timers are one millisecond late.
    #[default]
    Precise,
    /// The runtime's timers, and no other threads: in a runtime of one thread with paused time a run can be repeated.
    Runtime,
}

impl Timers {
    /// Runs blocking work on another thread. With the runtime's timers it runs inline, because the order of threads would
    /// differ between runs.
    pub(crate) async fn offload<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        match self {
            Self::Runtime => Ok(work()),
            Self::Precise => tokio::task::spawn_blocking(work).await,
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

/// An alarm with one time, which wakes precisely then.
///
/// tokio's timers fire about a millisecond late, which is as long as the hedge delay of a fast model. A thread that
/// waits on a condition variable with the smallest timer slack is about ten microseconds late and costs nothing while
/// idle. The dispatcher rarely sets the alarm: only when its earliest timer moves forward.
///
/// The alarm is set outside of the dispatcher's lock, so two settings may overtake each other. Each has a turn,
/// assigned under the lock, and a setting older than the last one is ignored. Otherwise the dispatcher would wait for a
/// time at which it is not woken.
pub(crate) enum Alarm {
    Thread(Arc<Shared>),
    Task(watch::Sender<Target>),
}

pub(crate) struct Shared {
    target: Mutex<Target>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Target {
    at: Option<Instant>,
    turn: u64,
    /// Time at which the thread checks the target by itself; later settings need not wake it.
    looked_at: Option<Instant>,
    ended: bool,
}

impl Alarm {
    /// Creates an alarm without a time.
    pub(crate) fn new(timers: Timers) -> Self {
        match timers {
            Timers::Precise => {
                Self::Thread(Arc::new(Shared { target: Mutex::default(), changed: Condvar::new() }))
            }
            Timers::Runtime => Self::Task(watch::Sender::default()),
        }
    }

    /// Starts to call `wake` at the set times; ends when that says so, or when the alarm is dropped.
    pub(crate) fn start(
        &self,
        wake: impl Fn() -> ControlFlow<()> + Send + Sync + 'static,
        lifelines: &Lifelines,
    ) -> io::Result<()> {
        match self {
            Self::Thread(shared) => {
                let (shared, lifelines) = (shared.clone(), lifelines.clone());
                let run = move || {
                    let _line = lifelines.hold("the timer");
                    shared.run(wake);
                };
                thread::Builder::new().name("parm-timer".into()).spawn(run)?;
            }
            Self::Task(set) => {
                lifelines.spawn(&Handle::current(), "the timer", sleep(set.subscribe(), wake));
            }
        }
        Ok(())
    }

    /// Sets the time, replacing one of an earlier turn.
    pub(crate) fn set(&self, at: Instant, turn: u64) {
        match self {
            Self::Thread(shared) => {
                let mut target = shared.target.lock();
                if target.set(at, turn) && target.looked_at.is_none_or(|looked_at| at < looked_at) {
                    drop(target);
                    shared.changed.notify_one();
                }
            }
            Self::Task(set) => {
                set.send_if_modified(|target| target.set(at, turn));
            }
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Self::Thread(shared) = self {
            shared.target.lock().ended = true;
            shared.changed.notify_one();
        }
    }
}

impl Target {
    /// Returns whether the setting was applied.
    fn set(&mut self, at: Instant, turn: u64) -> bool {
        let due = turn >= self.turn;
        if due {
            (self.at, self.turn) = (Some(at), turn);
        }
        due
    }
}

impl Shared {
    fn run(&self, wake: impl Fn() -> ControlFlow<()>) {
        // Rejected only by exotic kernels; wakes are then about 50 us later.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while self.wait() && wake().is_continue() {}
    }

    /// Waits until the alarm is due; false at its end.
    fn wait(&self) -> bool {
        let mut target = self.target.lock();
        loop {
            match target.at {
                _ if target.ended => return false,
                None => {
                    target.looked_at = None;
                    self.changed.wait(&mut target);
                }
                Some(at) if at <= Instant::now() => {
                    target.at = None;
                    return true;
                }
                Some(at) => {
                    target.looked_at = Some(at);
                    self.changed.wait_until(&mut target, at.into_std());
                }
            }
        }
    }
}

async fn sleep(mut target: watch::Receiver<Target>, wake: impl Fn() -> ControlFlow<()>) {
    loop {
        let Target { at, turn, .. } = *target.borrow_and_update();
        tokio::select! {
            biased;
            changed = target.changed() => if changed.is_err() { return },
            () = async { tokio::time::sleep_until(at.unwrap_or_else(Instant::now)).await }, if at.is_some() => {
                if wake().is_break() {
                    return;
                }
                // A setting made meanwhile stays; only the one that fired is cleared.
                if target.borrow_and_update().turn == turn && target.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn alarm_thread_wakes_at_its_last_time_and_is_woken_only_for_an_earlier_one() {
        let (send, rung) = mpsc::sync_channel(4);
        let alarm = Alarm::new(Timers::Precise);
        let rings = move || match send.send(Instant::now()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        alarm.start(rings, &Lifelines::default()).unwrap();
        let Alarm::Thread(shared) = &alarm else { unreachable!() };
        alarm.set(Instant::now() + Duration::from_secs(3600), 1);
        while shared.target.lock().looked_at.is_none() {
            thread::yield_now();
        }
        let looked_at = shared.target.lock().looked_at;
        alarm.set(Instant::now() + Duration::from_secs(7200), 2);
        assert_eq!(shared.target.lock().looked_at, looked_at, "a later setting must not wake the thread");
        let soon = Instant::now() + Duration::from_millis(5);
        alarm.set(soon, 3);
        assert!(rung.recv_timeout(Duration::from_secs(60)).unwrap() >= soon);
        assert_eq!(rung.try_recv(), Err(mpsc::TryRecvError::Empty));
    }

    #[tokio::test]
    async fn overtaken_alarm_setting_is_ignored() {
        for timers in [Timers::Precise, Timers::Runtime] {
            let alarm = Alarm::new(timers);
            let (soon, far) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
            alarm.set(soon, 2);
            alarm.set(far, 1);
            let target = match &alarm {
                Alarm::Thread(shared) => *shared.target.lock(),
                Alarm::Task(set) => *set.borrow(),
            };
            assert_eq!(target.at, Some(soon), "{timers:?}");
        }
    }
}
