//! Waiting precisely on an instance's own thread.
//!
//! The kernel rounds a thread's sleeps up by its timer slack, 50 us by default: too coarse for service times of
//! milliseconds whose tail is under study. With the slack at its minimum a sleep ends some 10 us late; the last
//! stretch is spun so that the mean comes out right. Spinning throughout would be exact too, and would take a core from
//! the very servers that are being measured.

use std::hint::spin_loop;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

/// How much of a pause is spun: about a wake-up's lateness.
const SPIN: Duration = Duration::from_micros(15);

/// Asks the kernel to wake this thread on time. Costs nothing where there is no such setting.
pub(crate) fn make_precise() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        tracing::debug!(%error, "timer slack stays as it is: pauses end some 50 us late");
    }
}

/// The most that a drawn time may be: a heavy tail shall not stop an experiment for good.
const LONGEST: Duration = Duration::from_secs(60);

/// A drawn time in milliseconds, at most a minute.
pub(crate) fn millis(drawn: f64) -> Duration {
    Duration::try_from_secs_f64(drawn / 1e3).map_or(LONGEST, |time| time.min(LONGEST))
}

/// Waits until `end`.
pub(crate) fn until(end: Instant) {
    if let Some(rest) = end.checked_duration_since(Instant::now()).and_then(|rest| rest.checked_sub(SPIN)) {
        thread::sleep(rest);
    }
    while Instant::now() < end {
        spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_tail_ends_at_a_minute() {
        let drawn = [1.5, 59_999.0, 70_000.0, 1e300, f64::INFINITY].map(millis);
        let seconds = drawn.map(|time| time.as_secs_f64());
        assert_eq!(seconds, [0.0015, 59.999, 60.0, 60.0, 60.0]);
    }
}
