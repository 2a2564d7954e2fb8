//! Shrinks a schedule that breaks a promise.
//!
//! Leaves out half of the events, a quarter, and so on, as long as the same promise is broken.

use crate::run::run;
use crate::schedule::{Event, Schedule};

/// Maximum runs.
const RUNS: usize = 300;

/// A smaller schedule that breaks the same promise.
pub(crate) fn shrink(schedule: &Schedule, rule: &str) -> Schedule {
    let mut least = schedule.clone();
    let mut chunk = least.events.len() / 2;
    let mut runs = 0;
    while chunk > 0 && runs < RUNS {
        let mut from = 0;
        while from < least.events.len() && runs < RUNS {
            let kept =
                least.events.iter().enumerate().filter(|(place, _)| !(from..from + chunk).contains(place));
            let events: Vec<Event> = kept.map(|(_, event)| event.clone()).collect();
            let smaller = Schedule { events, ..least.clone() };
            runs += 1;
            if run(&smaller).breaches.iter().any(|breach| breach.rule == rule) {
                least = smaller;
            } else {
                from += chunk;
            }
        }
        chunk /= 2;
    }
    least
}
