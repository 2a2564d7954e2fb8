//! The pacer: calls back at absolute times, on a thread of its own.
//!
//! Deadlines are absolute, so that one late wake-up does not shift all that follow (the drift that lowers the offered rate
//! of a sleep-in-a-loop generator). It sleeps to shortly before the deadline with the kernel's coarsest slack turned off,
//! then spins for the rest: measured elsewhere at 0 us of lag with rare hits of scheduling.

use std::thread;
use std::time::{Duration, Instant};

/// Left to spinning: what a sleep with a timer slack of 1 ns may overshoot.
const SPIN: Duration = Duration::from_micros(60);

/// Calls `send(index, intended, lag)` at every time of `schedule` after `start`, until it is exhausted or `send` says stop.
///
/// `lag` is how late the call was. Blocks the calling thread: give it one of its own.
pub fn run(
    start: Instant,
    schedule: impl IntoIterator<Item = Duration>,
    mut send: impl FnMut(usize, Instant, Duration) -> Continue,
) {
    precise_sleeps();
    for (index, offset) in schedule.into_iter().enumerate() {
        let intended = start + offset;
        wait_until(intended);
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

fn wait_until(deadline: Instant) {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > SPIN {
            thread::sleep(left - SPIN);
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Asks the kernel not to round this thread's sleeps up (50 us by default).
#[allow(unsafe_code)] // prctl has no safe wrapper in std; it touches this thread's timer slack only
fn precise_sleeps() {
    #[cfg(target_os = "linux")]
    // SAFETY: PR_SET_TIMERSLACK takes one integer and changes nothing but the calling thread's slack.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1usize, 0usize, 0usize, 0usize);
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
