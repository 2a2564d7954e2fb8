//! Conversion between the dispatcher's time and the runtime's.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
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

/// Is woken by an alarm, precisely at the time that it requested.
///
/// tokio's timers fire about a millisecond late, which is as long as the hedge delay of a fast model. A thread that
/// waits on a condition variable with the smallest timer slack is about ten microseconds late and costs nothing while
/// idle. The dispatcher rarely sets the alarm: only when its earliest timer moves forward.
///
/// The alarm is set outside of the dispatcher's lock, so two settings may overtake each other. Each has a turn,
/// assigned under the lock, and a setting older than the last one is ignored. Otherwise the dispatcher would wait for a
/// time at which it is not woken.
pub(crate) trait Wake: Send + Sync + 'static {
    /// Called at the set time.
    fn wake(self: Arc<Self>);
}

/// An alarm with one time.
pub(crate) enum Alarm {
    Thread(Arc<Shared>),
    Task(Arc<watch::Sender<Target>>, Option<Late>),
}

/// Delays settings, so that they may overtake each other, as on preempted threads.
pub(crate) struct Late {
    runtime: Handle,
    chance: AtomicU64,
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
        let late = match timers {
            Timers::Precise => {
                return Self::Thread(Arc::new(Shared { target: Mutex::default(), changed: Condvar::new() }));
            }
            Timers::Runtime => None,
            Timers::Simulated { seed } => {
                Some(Late { runtime: Handle::current(), chance: AtomicU64::new(seed) })
            }
        };
        Self::Task(Arc::default(), late)
    }

    /// Starts to wake `sleeper`; ends when the alarm is dropped.
    pub(crate) fn start<W: Wake>(&self, sleeper: Weak<W>, lifelines: &Lifelines) -> io::Result<()> {
        match self {
            Self::Thread(shared) => {
                let (shared, lifelines) = (shared.clone(), lifelines.clone());
                let run = move || {
                    let _line = lifelines.hold("the timer");
                    shared.run(&sleeper);
                };
                thread::Builder::new().name("parm-timer".into()).spawn(run)?;
            }
            Self::Task(set, _) => {
                lifelines.spawn(&Handle::current(), "the timer", sleep(set.subscribe(), sleeper));
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
            Self::Task(set, late) => match late.as_ref().map(|late| (late, late.pause())) {
                Some((late, pause)) if !pause.is_zero() => {
                    let set = set.clone();
                    late.runtime.spawn(async move {
                        tokio::time::sleep(pause).await;
                        set.send_if_modified(|target| target.set(at, turn));
                    });
                }
                _ => drop(set.send_if_modified(|target| target.set(at, turn))),
            },
        }
    }
}

impl Late {
    /// Delay of the next setting, usually zero (SplitMix64).
    fn pause(&self) -> Duration {
        let mixed = self.chance.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        Duration::from_millis(((mixed >> 40) % 20).saturating_sub(14))
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
    fn run<W: Wake>(&self, sleeper: &Weak<W>) {
        // Rejected only by exotic kernels; wakes are then about 50 us later.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while self.wait() {
            let Some(sleeper) = sleeper.upgrade() else { return };
            sleeper.wake();
        }
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

async fn sleep<W: Wake>(mut target: watch::Receiver<Target>, sleeper: Weak<W>) {
    loop {
        let Target { at, turn, .. } = *target.borrow_and_update();
        tokio::select! {
            biased;
            changed = target.changed() => if changed.is_err() { return },
            () = async { tokio::time::sleep_until(at.unwrap_or_else(Instant::now)).await }, if at.is_some() => {
                let Some(sleeper) = sleeper.upgrade() else { return };
                // A setting made meanwhile stays; only the one that fired is cleared.
                sleeper.wake();
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

    struct Bell(mpsc::SyncSender<Instant>);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(Instant::now());
        }
    }

    #[test]
    fn alarm_thread_wakes_at_last_set_time_and_not_before() {
        let (send, rung) = mpsc::sync_channel(4);
        let bell = Arc::new(Bell(send));
        let alarm = Alarm::new(Timers::Precise);
        alarm.start(Arc::downgrade(&bell), &Lifelines::default()).unwrap();
        let soon = Instant::now() + Duration::from_millis(5);
        alarm.set(Instant::now() + Duration::from_secs(3600), 1);
        alarm.set(soon, 2);
        assert!(rung.recv().unwrap() >= soon);
        assert_eq!(rung.try_recv(), Err(mpsc::TryRecvError::Empty));
    }

    #[test]
    fn alarm_thread_is_woken_only_by_earlier_settings() {
        let (send, rung) = mpsc::sync_channel(4);
        let bell = Arc::new(Bell(send));
        let alarm = Alarm::new(Timers::Precise);
        alarm.start(Arc::downgrade(&bell), &Lifelines::default()).unwrap();
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
    }

    #[tokio::test(start_paused = true)]
    async fn alarm_task_wakes_at_runtime_time() {
        let (send, rung) = mpsc::sync_channel(4);
        let bell = Arc::new(Bell(send));
        let alarm = Alarm::new(Timers::Runtime);
        alarm.start(Arc::downgrade(&bell), &Lifelines::default()).unwrap();
        for round in 1..=2u64 {
            let at = Instant::now() + Duration::from_secs(round);
            alarm.set(at, round);
            tokio::time::sleep(Duration::from_secs(round + 1)).await;
            assert!(rung.try_recv().unwrap() >= at);
        }
        assert!(rung.try_recv().is_err());
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
                Alarm::Task(set, _) => *set.borrow(),
            };
            assert_eq!(target.at, Some(soon), "{timers:?}");
        }
    }

    struct Trap;

    impl Wake for Trap {
        fn wake(self: Arc<Self>) {
            panic!("intended by the test");
        }
    }

    #[tokio::test]
    async fn panic_while_waking_breaks_the_line() {
        for timers in [Timers::Precise, Timers::Runtime] {
            let (trap, lifelines) = (Arc::new(Trap), Lifelines::default());
            let alarm = Alarm::new(timers);
            alarm.start(Arc::downgrade(&trap), &lifelines).unwrap();
            alarm.set(Instant::now(), 1);
            assert_eq!(lifelines.broken().await, "the timer");
        }
    }
}
