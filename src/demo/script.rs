//! Schedules the faults of the demo, the same for every policy.

use std::time::Duration;

use parm_workload::clock::Moment;
use parm_workload::distribution::Distribution;
use parm_workload::{By, Fault, Faults, Schedule, State, Targets, When};

/// Instances of each policy.
pub const INSTANCES: u32 = 6;

/// Share of the runs that are stragglers, and the range of the factors by which they are slower.
pub const STRAGGLERS: f64 = 0.01;
pub const STRAGGLE: (f64, f64) = (5.0, 10.0);
/// Factor by which the first instance is always slower, as a rank of a measured fleet was.
pub const SICK: f64 = 2.4;
/// Factor by which an instance is slower while a neighbour disturbs it.
pub const SLOW: f64 = 5.0;
/// Longest hang.
const LONGEST_HANG: Duration = Duration::from_secs(3);
/// Shortest fault: a schedule rejects those of zero length.
const SHORTEST: Duration = Duration::from_millis(1);

/// Returns the faults of a run. Instance 1 is always slow. At first there are only stragglers next to it; then instance 2 is
/// slow for a while, then 3 hangs, then 4 and 6 are slow in turns. The paper's policy reserves the last two for parities, so that faults hit both kinds of its instances.
pub fn faults(length: Duration) -> Faults {
    let part = |share: f64| length.mul_f64(share).max(SHORTEST);
    let once = |at: f64, share: f64| When::Once { at: part(at), length: part(share) };
    let slow = |instance: u32, at, share| Fault::Slow {
        factor: SLOW,
        when: once(at, share),
        on: Targets::Only(vec![instance]),
    };
    let hang = When::Once { at: part(0.5), length: part(0.05).min(LONGEST_HANG) };
    let (min, max) = STRAGGLE;
    Faults(vec![
        Fault::Straggle {
            share: STRAGGLERS,
            factor: Distribution::Uniform { min, max },
            by: By::Run,
            on: Targets::Each,
        },
        Fault::Slow { factor: SICK, when: When::Always, on: Targets::Only(vec![0]) },
        slow(1, 0.2, 0.15),
        Fault::Hang { when: hang, on: Targets::Only(vec![2]) },
        slow(3, 0.7, 0.1),
        slow(5, 0.75, 0.1),
    ])
}

/// Returns the condition of an instance in a word.
pub fn condition(schedule: &mut Schedule, instance: u32, at: Duration) -> &'static str {
    let now = schedule.condition(instance, Moment::after(at));
    match now.state {
        State::Hangs => "HUNG",
        _ if now.slowdown > 1.0 => "slow",
        _ => "ok",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_fits_every_length_and_ends_with_one_slow_instance() {
        for seconds in [5, 60, 3600] {
            let length = Duration::from_secs(seconds);
            let mut schedule = Schedule::new(&faults(length), 1, INSTANCES).unwrap();
            let mut seen: Vec<&str> = Vec::new();
            for step in 0..1000 {
                for instance in 0..INSTANCES {
                    seen.push(condition(&mut schedule, instance, length.mul_f64(f64::from(step) / 1000.0)));
                }
            }
            assert!(["HUNG", "slow", "ok"].iter().all(|word| seen.contains(word)), "{seconds} s");
            let end = (0..INSTANCES).map(|instance| condition(&mut schedule, instance, length));
            assert!(end.eq(["slow", "ok", "ok", "ok", "ok", "ok"]));
        }
    }
}
