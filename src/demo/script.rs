//! Schedules the faults of the demo, the same for every policy: after a warm-up two servers are slow, then one is frozen.

use std::time::Duration;

use parm_workload::Time;
use parm_workload::distribution::Distribution;
use parm_workload::{By, Fault, Faults, Schedule, State, Targets, When};

/// Share of the runs that are stragglers, and the range of the factors by which they are slower.
pub const STRAGGLERS: f64 = 0.01;
pub const STRAGGLE: (f64, f64) = (5.0, 10.0);
/// Factors by which the first servers are slower in the first act.
pub const SLOW: [f64; 2] = [3.0, 5.0];
/// The server that freezes in the second act.
const FROZEN: u32 = 2;
/// Longest warm-up, whose queries are not counted.
const WARM_UP: Duration = Duration::from_millis(1500);

/// The acts of a demo.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// The end of the warm-up.
    pub warm_up: Duration,
    /// The end of the first act.
    pub middle: Duration,
    pub length: Duration,
}

impl Script {
    pub fn of(length: Duration) -> Self {
        let warm_up = WARM_UP.min(length / 10);
        Self { warm_up, middle: warm_up + (length - warm_up) / 2, length }
    }

    /// Returns the number of the act at a time, if it counts.
    pub fn act(&self, at: Duration) -> Option<usize> {
        (at >= self.warm_up).then_some(usize::from(at >= self.middle))
    }

    /// Returns the faults of all servers.
    pub fn faults(&self) -> Faults {
        let (min, max) = STRAGGLE;
        let first = When::Once { at: self.warm_up, length: self.middle - self.warm_up };
        // The last answers are awaited, so it is frozen beyond the end.
        let second = When::Once { at: self.middle, length: 2 * self.length };
        let slow = (0..).zip(SLOW).map(|(server, factor)| Fault::Slow {
            factor,
            when: first.clone(),
            on: Targets::Only(vec![server]),
        });
        let others = [
            Fault::Straggle {
                share: STRAGGLERS,
                factor: Distribution::Uniform { min, max },
                by: By::Run,
                on: Targets::Each,
            },
            Fault::Hang { when: second, on: Targets::Only(vec![FROZEN]) },
        ];
        Faults(slow.chain(others).collect())
    }
}

/// Returns the conditions of the servers that are slow or frozen, in words.
pub fn troubled(schedule: &mut Schedule, at: Duration) -> String {
    let servers = 0..(SLOW.len() as u32).max(FROZEN + 1);
    let words = servers.filter_map(|server| {
        let now = schedule.condition(server, Time::ZERO + at);
        match now.state {
            State::Hangs => Some(format!("server {} is FROZEN", server + 1)),
            _ if now.slowdown > 1.0 => Some(format!("server {} is slow", server + 1)),
            _ => None,
        }
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::Policy;

    #[test]
    fn servers_are_slow_and_then_one_is_frozen_at_every_length() {
        for seconds in [5, 20, 3600] {
            let script = Script::of(Duration::from_secs(seconds));
            let mut schedule = Schedule::new(&script.faults(), 1, Policy::MOST_SERVERS).unwrap();
            let mut seen = |share: f64| {
                let at = script.length.mul_f64(share);
                (script.act(at), troubled(&mut schedule, at))
            };
            assert_eq!(seen(0.0), (None, String::new()), "{seconds} s");
            assert_eq!(seen(0.3), (Some(0), "server 1 is slow, server 2 is slow".into()), "{seconds} s");
            assert_eq!(seen(0.7), (Some(1), "server 3 is FROZEN".into()), "{seconds} s");
            assert_eq!(seen(1.0), (Some(1), "server 3 is FROZEN".into()), "{seconds} s");
        }
    }
}
