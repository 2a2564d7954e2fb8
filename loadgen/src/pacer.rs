//! The pacer: calls back at absolute times, on a dedicated thread.
//!
//! Times are absolute, so one late wake-up does not delay all later ones (the drift that lowers the rate of a generator
//! that sleeps in a loop). The pacer sleeps until shortly before the time, then spins. It learns that margin from how
//! late its sleeps end, because spinning longer than necessary takes a core from a server on the same machine. The kernel
//! is asked to schedule the thread immediately when it wakes, even if all cores are busy: see [`crate::prompt`].

use std::thread;
use std::time::{Duration, Instant};

use crate::prompt::Prompt;

/// The shortest and the longest time that is left to spinning.
const LEAST_SPIN: Duration = Duration::from_micros(10);
const MOST_SPIN: Duration = Duration::from_micros(100);

/// Calls `send(index, intended, lag)` at every time of `schedule` after `start`, until the schedule ends or `send` stops
/// it.
///
/// `lag` is how late the call was. Blocks the calling thread, which should do nothing else.
pub fn run(
    start: Instant,
    schedule: impl IntoIterator<Item = Duration>,
    mut send: impl FnMut(usize, Instant, Duration) -> Continue,
) {
    let _until_the_end = Prompt::ask();
    let mut sleeper = Sleeper { spin: MOST_SPIN };
    for (index, offset) in schedule.into_iter().enumerate() {
        // A time beyond the clock never comes.
        let Some(intended) = start.checked_add(offset) else { return };
        sleeper.wait_until(intended);
        let lag = Instant::now().saturating_duration_since(intended);
        if send(index, intended, lag) == Continue::Stop {
            return;
        }
    }
}

/// Whether the pacer continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// With the next time.
    Next,
    /// No further.
    Stop,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_called_once_in_order_and_never_early() {
        let start = Instant::now();
        let schedule: Vec<_> = (0..200).map(|i| Duration::from_micros(i * 100)).collect();
        let mut seen = Vec::new();
        run(start, schedule.clone(), |index, intended, _| {
            assert!(Instant::now() >= intended, "call {index} was early");
            seen.push(intended - start);
            Continue::Next
        });
        assert_eq!(seen, schedule);
    }

    #[test]
    fn time_beyond_the_clock_ends_the_schedule() {
        let mut calls = 0;
        run(Instant::now(), [Duration::ZERO, Duration::MAX], |_, _, _| {
            calls += 1;
            Continue::Next
        });
        assert_eq!(calls, 1);
    }

    #[test]
    fn pacer_stops_when_the_callback_says_so() {
        let mut calls = 0;
        run(Instant::now(), std::iter::repeat(Duration::ZERO), |_, _, _| {
            calls += 1;
            if calls == 3 { Continue::Stop } else { Continue::Next }
        });
        assert_eq!(calls, 3);
    }
}
