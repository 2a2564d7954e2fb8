//! The pacer: calls back at absolute times, on a dedicated thread.
//!
//! Times are absolute, so one late wake-up does not delay all later ones (the drift that lowers the rate of a generator
//! that sleeps in a loop). The pacer sleeps until shortly before the time, then spins. It learns that margin from how
//! late its sleeps end, because spinning longer than necessary takes a core from a server on the same machine. The kernel
//! is asked to schedule the thread immediately when it wakes, even if all cores are busy.
//!
//! On two busy cores a thread of the default scheduling class waits about 3 ms in one of a hundred wake-ups, which is too
//! late for a schedule. Three settings help, if the kernel allows them. First, sleeps that are not rounded up (by 50 us
//! otherwise). Second, the lowest real-time priority, which requires root or `CAP_SYS_NICE` (0.08 ms instead of 3). If
//! that is refused, slices of 0.1 ms (Linux 6.12 and later), which let a waking thread in sooner (1.5 ms).

use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

/// The shortest and the longest time that is left to spinning.
const LEAST_SPIN: Duration = Duration::from_micros(10);
const MOST_SPIN: Duration = Duration::from_micros(100);

/// A request that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Its number, counted from 0.
    pub index: usize,
    /// When it was to be sent.
    pub intended: Instant,
    /// How late it is.
    pub lag: Duration,
}

/// Calls `send` at every time of `schedule` after `start`, until the schedule ends or `send` stops it. Blocks the calling thread,
/// which should do nothing else.
pub fn run(
    start: Instant,
    schedule: impl IntoIterator<Item = Duration>,
    mut send: impl FnMut(Due) -> ControlFlow<()>,
) {
    let _until_the_end = Prompt::ask();
    let mut sleeper = Sleeper { spin: MOST_SPIN };
    for (index, offset) in schedule.into_iter().enumerate() {
        // A time beyond the clock never comes.
        let Some(intended) = start.checked_add(offset) else { return };
        sleeper.wait_until(intended);
        let lag = Instant::now().saturating_duration_since(intended);
        if send(Due { index, intended, lag }).is_break() {
            return;
        }
    }
}

struct Sleeper {
    /// How far sleeps overshoot, as learned so far.
    spin: Duration,
}

impl Sleeper {
    fn wait_until(&mut self, deadline: Instant) {
        loop {
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return;
            }
            if left > self.spin {
                let nap = left - self.spin;
                thread::sleep(nap);
                self.learn(now.elapsed().saturating_sub(nap));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Takes half as much again as the overshoot, and forgets slowly: one long delay does not predict the next sleep.
    fn learn(&mut self, overshoot: Duration) {
        let wanted = (overshoot + overshoot / 2).clamp(LEAST_SPIN, MOST_SPIN);
        self.spin =
            if wanted > self.spin { (self.spin + wanted) / 2 } else { (15 * self.spin + wanted) / 16 };
    }
}

/// The calling thread is prompt until this is dropped.
struct Prompt {
    #[cfg(target_os = "linux")]
    before: Option<linux::Scheduling>,
    /// Dropped on the thread that created it: the changed settings belong to that thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Prompt {
    /// Changes the settings of the calling thread. Those that the kernel refuses stay unchanged.
    fn ask() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            before: linux::ask(),
            _here: std::marker::PhantomData,
        }
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(before) = self.before.take() {
            before.set();
        }
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // plain system calls on the calling thread, for which neither std nor rustix has a wrapper
mod linux {
    use std::num::NonZeroU64;

    /// How the kernel schedules a thread.
    #[derive(Clone, Copy)]
    pub(super) struct Scheduling(libc::sched_attr);

    /// The setting before the change; `None` if there is nothing to restore.
    pub(super) fn ask() -> Option<Scheduling> {
        // Only unusual kernels refuse this.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let before = Scheduling::get().filter(|now| now.0.sched_policy == libc::SCHED_OTHER as u32)?;
        let real_time = libc::sched_attr {
            sched_policy: libc::SCHED_FIFO as u32,
            sched_priority: 1,
            sched_nice: 0,
            sched_runtime: 0,
            // Threads that this one starts are ordinary ones.
            sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
            ..before.0
        };
        let short_slices = libc::sched_attr { sched_runtime: 100_000, ..before.0 };
        (Scheduling(real_time).set() || Scheduling(short_slices).set()).then_some(before)
    }

    impl Scheduling {
        pub(super) fn get() -> Option<Self> {
            let size = size_of::<libc::sched_attr>() as u32;
            // SAFETY: all zeros are a valid value of this struct of integers, and the kernel writes at most `size` bytes to it.
            let (failed, attributes) = unsafe {
                let mut attributes: libc::sched_attr = std::mem::zeroed();
                (libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0u32), attributes)
            };
            (failed == 0).then_some(Self(attributes))
        }

        /// Returns whether the kernel accepted the setting.
        pub(super) fn set(self) -> bool {
            // SAFETY: the struct has the size that it states, outlives the call, and affects the calling thread only.
            unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const self.0, 0u32) == 0 }
        }

        #[cfg(test)]
        pub(super) fn policy_and_slice(self) -> (u32, u64) {
            (self.0.sched_policy, self.0.sched_runtime)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_called_once_in_order_and_never_early() {
        let start = Instant::now();
        let schedule: Vec<_> = (0..200).map(|i| Duration::from_micros(i * 100)).collect();
        let mut seen = Vec::new();
        run(start, schedule.clone(), |Due { index, intended, .. }| {
            assert!(Instant::now() >= intended, "call {index} was early");
            seen.push(intended - start);
            ControlFlow::Continue(())
        });
        assert_eq!(seen, schedule);
    }

    #[test]
    fn schedule_ends_at_a_time_beyond_the_clock_and_when_the_callback_says_so() {
        let calls = |schedule: &mut dyn Iterator<Item = Duration>| {
            let mut calls = 0;
            run(Instant::now(), schedule, |_| {
                calls += 1;
                if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            calls
        };
        assert_eq!(calls(&mut [Duration::ZERO, Duration::MAX].into_iter()), 1);
        assert_eq!(calls(&mut std::iter::repeat(Duration::ZERO)), 3);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn scheduling_is_restored_when_the_prompt_is_dropped() {
        let now = || linux::Scheduling::get().unwrap().policy_and_slice();
        let before = now();
        let prompt = Prompt::ask();
        let during = now();
        // A kernel may refuse everything; then nothing has changed.
        assert!(prompt.before.is_some() == (during != before), "{before:?} {during:?}");
        drop(prompt);
        assert_eq!(now(), before);
    }
}
