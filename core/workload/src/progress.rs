//! Computes when a run ends that meets faults.
//!
//! The work is spread over the stretches of time that it lasts, each at its own speed. A run that is nearly done when an
//! episode begins is hardly affected, and a run on a hung instance ends when the hang is over and the work is done.

use crate::clock::Moment;
use crate::{Schedule, State};
use parm_random::Random;

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer that is in at this moment.
    Answered {
        /// When the answer is in.
        at: Moment,
        /// It is wrong.
        wrong: bool,
    },
    /// The instance went down with it.
    Lost {
        /// When.
        at: Moment,
    },
    /// Never: the instance hangs or is cut off for good.
    Never,
}

impl Schedule {
    /// Returns how a run ends that starts at this moment and would take this many nanoseconds without faults. Faults
    /// that follow the query are not included: multiply by [`Schedule::longest`].
    pub fn run(&mut self, instance: u32, start: Moment, nanos: f64) -> Ending {
        let mut left = nanos * self.straggling(instance, start);
        let mut at = start;
        let mut arrived = false;
        loop {
            let now = self.condition(instance, at);
            match now.state {
                State::Down => return Ending::Lost { at },
                State::Hangs => {}
                State::CutOff if !arrived => {}
                State::CutOff | State::Works => {
                    arrived = true;
                    let done = at.later(left * now.slowdown);
                    if done <= now.until && done < Moment::NEVER {
                        return self.deliver(instance, done);
                    }
                    left -= now.until.nanos_since(at) as f64 / now.slowdown;
                }
            }
            if now.until == Moment::NEVER {
                return Ending::Never;
            }
            at = now.until;
        }
    }

    /// A completed answer waits until the frontend can be reached.
    fn deliver(&mut self, instance: u32, ready: Moment) -> Ending {
        let mut at = ready;
        loop {
            let now = self.condition(instance, at);
            match now.state {
                State::CutOff if now.until == Moment::NEVER => return Ending::Never,
                State::CutOff => at = now.until,
                State::Down if at > ready => return Ending::Lost { at },
                State::Works | State::Hangs | State::Down => {
                    let name = [WRONG, u64::from(instance), ready.as_nanos()];
                    let wrong = now.wrong > 0.0 && Random::of(self.seed(), name).uniform() < now.wrong;
                    return Ending::Answered { at, wrong };
                }
            }
        }
    }
}

const WRONG: u64 = 0x3106;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Fault, Faults, Targets, When};

    const MS: f64 = 1e6;

    fn at(ms: u64) -> Moment {
        Moment::after(Duration::from_millis(ms))
    }

    fn check(faults: Vec<Fault>, start: u64, work: f64, expect: Ending) {
        let mut schedule = Schedule::new(&Faults(faults), 1, 1).unwrap();
        assert_eq!(schedule.run(0, at(start), work * MS), expect);
    }

    fn once(at_ms: u64, length_ms: u64) -> When {
        When::Once { at: Duration::from_millis(at_ms), length: Duration::from_millis(length_ms) }
    }

    fn answered(ms: u64) -> Ending {
        Ending::Answered { at: at(ms), wrong: false }
    }

    #[test]
    fn run_is_slowed_during_each_episode() {
        let slow = || vec![Fault::Slow { factor: 5.0, when: once(100, 50), on: Targets::Each }];
        check(slow(), 0, 20.0, answered(20));
        check(slow(), 90, 20.0, answered(150)); // 10 at full speed, 10 at a fifth of it
        check(slow(), 120, 20.0, answered(164)); // 30 ms of the episode are worth 6
        check(slow(), 150, 20.0, answered(170));
    }

    #[test]
    fn slowdowns_multiply() {
        let slow = |factor| Fault::Slow { factor, when: When::Always, on: Targets::Each };
        check(vec![slow(2.0), slow(3.0)], 0, 10.0, answered(60));
    }

    #[test]
    fn hang_delays_the_run_and_partition_only_its_answer() {
        let hang = || vec![Fault::Hang { when: once(10, 3000), on: Targets::Each }];
        check(hang(), 0, 20.0, answered(3020));
        check(hang(), 500, 20.0, answered(3030));
        let cut = || vec![Fault::Partition { when: once(10, 3000), on: Targets::Each }];
        check(cut(), 0, 20.0, answered(3010));
        check(cut(), 500, 20.0, answered(3030)); // the request arrives only after the partition
        check(cut(), 0, 5.0, answered(5));
        check(vec![Fault::Hang { when: When::Always, on: Targets::Each }], 0, 5.0, Ending::Never);
    }

    #[test]
    fn crash_loses_the_run_and_the_restart_is_slow() {
        let crash = || {
            let (when, on) = (once(100, 1000), Targets::Each);
            vec![Fault::Crash { when, on, slow_start: 3.0, slow_start_for: Duration::from_millis(500) }]
        };
        check(crash(), 90, 20.0, Ending::Lost { at: at(100) });
        check(crash(), 200, 20.0, Ending::Lost { at: at(200) });
        check(crash(), 1100, 20.0, answered(1160));
        check(crash(), 1600, 20.0, answered(1620));
        let mut schedule = Schedule::new(&Faults(crash()), 1, 1).unwrap();
        assert_eq!(schedule.next_crash(0, at(0)), Some((at(100), at(1100))));
        assert_eq!(schedule.next_crash(0, at(1100)), None);
    }

    #[test]
    fn a_share_of_the_answers_is_wrong() {
        let faults = Faults(vec![Fault::Wrong { share: 0.2, when: When::Always, on: Targets::Each }]);
        let mut schedule = Schedule::new(&faults, 4, 1).unwrap();
        let wrong = (0..5000).filter(|i| {
            matches!(schedule.run(0, at(i * 20), 20.0 * MS), Ending::Answered { wrong: true, .. })
        });
        let wrong = wrong.count();
        assert!((900..1100).contains(&wrong), "{wrong}");
    }
}
