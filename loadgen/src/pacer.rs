//! The pacer: calls back at absolute times, on a thread of its own.
//!
//! Deadlines are absolute, so that one late wake-up does not shift all that follow (the drift that lowers the offered rate
//! of a sleep-in-a-loop generator). It sleeps to shortly before the deadline with the kernel's coarsest slack turned off,
//! then spins for the rest. How shortly is learned from how late the sleeps end: spinning longer than needed takes a core
//! from the server where both share a machine. And the kernel is asked to run this thread as soon as it wakes, even where all
//! cores are busy: see [`crate::prompt`].

use std::thread;
use std::time::{Duration, Instant};

use crate::prompt::Prompt;

/// The least and the most that is left to spinning.
const LEAST_SPIN: Duration = Duration::from_micros(10);
const MOST_SPIN: Duration = Duration::from_micros(100);

/// Calls `send(index, intended, lag)` at every time of `schedule` after `start`, until it is exhausted or `send` says stop.
///
/// `lag` is how late the call was. Blocks the calling thread: give it one of its own.
pub fn run(
    start: Instant,
    schedule: impl IntoIterator<Item = Duration>,
    mut send: impl FnMut(usize, Instant, Duration) -> Continue,
) {
    let _until_the_end = Prompt::ask();
    let mut sleeper = Sleeper { spin: MOST_SPIN };
    for (index, offset) in schedule.into_iter().enumerate() {
        let intended = start + offset;
        sleeper.wait_until(intended);
        let lag = Instant::now().saturating_duration_since(intended);
        if send(index, intended, lag) == Continue::Stop {
            return;
        }
    }
}

/// Whether the pacer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// With the next time.
    Next,
    /// No further.
    Stop,
}

struct Sleeper {
    /// What sleeps may overshoot, as far as they have shown.
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

    /// Half as much again as usual, forgotten slowly: one long delay says little of the next sleep.
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
    fn it_stops_when_told() {
        let mut calls = 0;
        run(Instant::now(), std::iter::repeat(Duration::ZERO), |_, _, _| {
            calls += 1;
            if calls == 3 { Continue::Stop } else { Continue::Next }
        });
        assert_eq!(calls, 3);
    }
}
