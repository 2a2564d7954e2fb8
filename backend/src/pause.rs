//! Precise sleeps on an instance's own thread.
//!
//! The kernel rounds the sleeps of a thread up by its timer slack, 50 us by default. That is too coarse for service
//! times of milliseconds whose tail is measured. With the minimum slack a sleep ends about 10 us late; the last part is
//! a spin loop, which corrects the mean. A longer spin loop would take a core from the servers under test.

use std::hint::spin_loop;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

/// The length of the spin loop: about the lateness of a wake-up.
const SPIN: Duration = Duration::from_micros(15);

/// Sets the timer slack of this thread to its minimum. Does nothing on systems without that setting.
pub(crate) fn make_precise() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        tracing::debug!(%error, "cannot set the timer slack: pauses end about 50 us late");
    }
}

/// The maximum of a drawn time: a heavy tail must not stop an experiment.
const LONGEST: Duration = Duration::from_secs(60);

/// Limits a drawn time in milliseconds to a minute.
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
    fn drawn_time_is_at_most_a_minute() {
        let drawn = [1.5, 59_999.0, 70_000.0, 1e300, f64::INFINITY].map(millis);
        let seconds = drawn.map(|time| time.as_secs_f64());
        assert_eq!(seconds, [0.0015, 59.999, 60.0, 60.0, 60.0]);
    }
}
