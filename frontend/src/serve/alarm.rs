//! Wakes the dispatcher at the time it asked for, precisely.
//!
//! tokio's timers fire about a millisecond late, as long as a whole hedge delay of a fast model. A thread that waits on
//! a condition with the smallest timer slack that the kernel has is late by some ten microseconds, and costs nothing
//! while nothing is due. The dispatcher asks rarely: only when its earliest timer moves forward.

use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tokio::time::Instant;

use super::clock::Timers;

/// What is woken.
pub(crate) trait Wake: Send + Sync + 'static {
    /// The time has come.
    fn wake(self: Arc<Self>);
}

/// One settable alarm.
pub(crate) enum Alarm {
    Thread(Arc<Shared>),
    Task(watch::Sender<Option<Instant>>),
}

pub(crate) struct Shared {
    target: Mutex<Target>,
    changed: Condvar,
}

#[derive(Default)]
struct Target {
    at: Option<Instant>,
    ended: bool,
}

impl Alarm {
    /// An alarm that is not set.
    pub(crate) fn new(timers: Timers) -> Self {
        match timers {
            Timers::Precise => {
                Self::Thread(Arc::new(Shared { target: Mutex::default(), changed: Condvar::new() }))
            }
            Timers::Runtime => Self::Task(watch::channel(None).0),
        }
    }

    /// Wakes `sleeper` from now on; ends when the alarm is dropped.
    pub(crate) fn start<W: Wake>(&self, sleeper: Weak<W>) -> io::Result<()> {
        match self {
            Self::Thread(shared) => {
                let shared = shared.clone();
                thread::Builder::new().name("parm-timer".into()).spawn(move || shared.run(&sleeper))?;
            }
            Self::Task(set) => {
                tokio::spawn(sleep(set.subscribe(), sleeper));
            }
        }
        Ok(())
    }

    /// Sets the alarm, in place of what it was set to.
    pub(crate) fn set(&self, at: Instant) {
        match self {
            Self::Thread(shared) => {
                shared.target.lock().at = Some(at);
                shared.changed.notify_one();
            }
            Self::Task(set) => {
                set.send_replace(Some(at));
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

impl Shared {
    fn run<W: Wake>(&self, sleeper: &Weak<W>) {
        // Refused only by exotic kernels; then wakes are some 50 us later.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while self.wait() {
            let Some(sleeper) = sleeper.upgrade() else { return };
            sleeper.wake();
        }
    }

    /// Waits until the alarm is due; false when it ended.
    fn wait(&self) -> bool {
        let mut target = self.target.lock();
        loop {
            match target.at {
                _ if target.ended => return false,
                None => self.changed.wait(&mut target),
                Some(at) if at <= Instant::now() => {
                    target.at = None;
                    return true;
                }
                Some(at) => {
                    self.changed.wait_until(&mut target, at.into_std());
                }
            }
        }
    }
}

async fn sleep<W: Wake>(mut target: watch::Receiver<Option<Instant>>, sleeper: Weak<W>) {
    loop {
        let at = *target.borrow_and_update();
        tokio::select! {
            biased;
            changed = target.changed() => if changed.is_err() { return },
            () = async { tokio::time::sleep_until(at.unwrap_or_else(Instant::now)).await }, if at.is_some() => {
                let Some(sleeper) = sleeper.upgrade() else { return };
                // Whatever was set meanwhile stays; only what fired is taken back.
                sleeper.wake();
                if *target.borrow_and_update() == at && target.changed().await.is_err() {
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
    fn the_thread_wakes_at_the_last_time_set_and_not_before() {
        let (send, rung) = mpsc::sync_channel(4);
        let bell = Arc::new(Bell(send));
        let alarm = Alarm::new(Timers::Precise);
        alarm.start(Arc::downgrade(&bell)).unwrap();
        let soon = Instant::now() + Duration::from_millis(5);
        alarm.set(Instant::now() + Duration::from_secs(3600));
        alarm.set(soon);
        assert!(rung.recv().unwrap() >= soon);
        assert_eq!(rung.try_recv(), Err(mpsc::TryRecvError::Empty));
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_wakes_at_the_runtimes_time() {
        let (send, rung) = mpsc::sync_channel(4);
        let bell = Arc::new(Bell(send));
        let alarm = Alarm::new(Timers::Runtime);
        alarm.start(Arc::downgrade(&bell)).unwrap();
        for round in 1..=2u64 {
            let at = Instant::now() + Duration::from_secs(round);
            alarm.set(at);
            tokio::time::sleep(Duration::from_secs(round + 1)).await;
            assert!(rung.try_recv().unwrap() >= at);
        }
        assert!(rung.try_recv().is_err());
    }
}
