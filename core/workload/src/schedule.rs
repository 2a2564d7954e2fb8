//! The condition of an instance at a moment: a pure function of the faults, a seed, the instance and the moment. And how a run
//! ends that meets faults.
//!
//! Random episodes cannot be computed for one moment alone, so they are generated up to the latest requested moment and
//! kept until `forget`. The answers do not depend on the order of requests, only their cost does: requests in order of
//! time take constant work each.

use std::sync::Arc;

use crate::Error;
use crate::distribution::Distribution;
use crate::fault::Place;
use crate::shuffles::{Shuffles, Size};
use crate::spans::{Effect, Episodes, Pace, Span, Stages};
use crate::{By, Fault, Faults, When};
use parm_durations::Time;
use parm_random::Random;

/// Faults on a number of instances, for a seed.
#[derive(Clone, Debug)]
pub struct Schedule {
    seed: u64,
    instances: Vec<Instance>,
    shuffles: Vec<Shuffles>,
}

/// The condition of an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// How many times as long runs take.
    pub slowdown: f64,
    /// Whether it works at all.
    pub state: State,
    /// Share of its answers that are wrong.
    pub wrong: f64,
    /// The condition does not change before this moment.
    pub until: Time,
}

/// Whether an instance works; if several faults apply, the last in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It does.
    Works,
    /// It works but is unreachable.
    CutOff,
    /// It makes no progress.
    Hangs,
    /// It is gone.
    Down,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer that is in at this moment.
    Answered {
        /// When the answer is in.
        at: Time,
        /// It is wrong.
        wrong: bool,
    },
    /// The instance went down with it.
    Lost {
        /// When.
        at: Time,
    },
    /// Never: the instance hangs or is cut off for good.
    Never,
}

#[derive(Clone, Debug, Default)]
struct Instance {
    straggles: Vec<Straggle>,
    sizes: Vec<Arc<[f64]>>,
    paces: Vec<Pace>,
    episodes: Vec<Episodes>,
    crashes: bool,
}

#[derive(Clone, Debug)]
struct Straggle {
    fault: u64,
    share: f64,
    factor: Distribution,
    by: By,
}

impl Schedule {
    /// Applies faults to this many instances under this seed.
    pub fn new(faults: &Faults, seed: u64, instances: u32) -> Result<Self, Error> {
        faults.check(instances)?;
        let mut schedule =
            Self { seed, instances: vec![Instance::default(); instances as usize], shuffles: Vec::new() };
        for (index, fault) in faults.0.iter().enumerate() {
            schedule.add(fault, Place { seed, index, instances });
        }
        Ok(schedule)
    }

    /// Returns the condition of an instance at a moment.
    pub fn condition(&mut self, instance: u32, at: Time) -> Condition {
        let mut condition = Condition::fine();
        for episodes in &mut self.instances[instance as usize].episodes {
            let (effect, until) = episodes.spans(at).look(at);
            condition.add(effect, until);
        }
        for shuffles in &mut self.shuffles {
            let (effect, until) = shuffles.spans(instance, at).look(at);
            condition.add(effect, until);
        }
        for pace in &self.instances[instance as usize].paces {
            let (effect, until) = pace.look(at);
            condition.add(effect, until);
        }
        condition
    }

    /// Returns the factor of stragglers on a run that starts at this moment, without those that follow the query.
    pub fn straggling(&self, instance: u32, start: Time) -> f64 {
        let number = u64::from(instance);
        self.instances[instance as usize]
            .straggles
            .iter()
            .map(|straggle| match straggle.by {
                By::Run => straggle.draw(self.seed, [STRAGGLE, straggle.fault, number, start.as_nanos()]),
                By::Instance => straggle.draw(self.seed, [OWN, straggle.fault, number]),
                By::Query => 1.0,
            })
            .product()
    }

    /// Whether run times follow the query on any instance.
    pub fn follows_queries(&self) -> bool {
        self.instances.iter().any(Instance::follows_queries)
    }

    /// Returns the factor on run times that follows the query: the same for each of its runs. A query is named by its
    /// number in a simulation, and by a hash of its inputs in a worker.
    pub fn length(&self, instance: u32, query: u64) -> f64 {
        let here = &self.instances[instance as usize];
        let drawn = here.straggles.iter().filter(|straggle| straggle.by == By::Query);
        let drawn: f64 =
            drawn.map(|straggle| straggle.draw(self.seed, [QUERY, straggle.fault, query])).product();
        let sizes = here.sizes.iter().map(|factors| factors[(query % factors.len() as u64) as usize]);
        drawn * sizes.product::<f64>()
    }

    /// Returns the factor for the longest of these queries: a batch is padded to it, and so is the parity of a group.
    pub fn longest(&self, instance: u32, queries: impl IntoIterator<Item = u64>) -> f64 {
        if !self.instances[instance as usize].follows_queries() {
            return 1.0;
        }
        queries.into_iter().map(|query| self.length(instance, query)).reduce(f64::max).unwrap_or(1.0)
    }

    /// Returns the first downtime of an instance at or after a moment: its start and end.
    pub fn next_crash(&mut self, instance: u32, after: Time) -> Option<(Time, Time)> {
        if !self.instances[instance as usize].crashes {
            return None;
        }
        let crashes = self.instances[instance as usize].episodes.iter_mut().filter_map(|episodes| {
            let mut at = after;
            loop {
                let spans = episodes.spans(at);
                if let Some(Span { from, to, .. }) = spans.next(Effect::Down, after) {
                    return Some((from, to));
                }
                let (_, until) = spans.look(at);
                if until == Time::MAX || !episodes.crashes() {
                    return None;
                }
                at = until;
            }
        });
        crashes.min()
    }

    /// Discards the knowledge of an instance before a moment, which must not be requested again.
    pub fn forget(&mut self, instance: u32, before: Time) {
        self.instances[instance as usize].episodes.iter_mut().for_each(|episodes| episodes.forget(before));
        self.shuffles.iter_mut().for_each(|shuffles| shuffles.forget(instance, before));
    }

    /// Returns how a run ends that starts at this moment and would take this many nanoseconds without faults. Faults
    /// that follow the query are not included: multiply by [`Schedule::longest`].
    ///
    /// The work is spread over the stretches of time that it lasts, each at its own speed. A run that is nearly done when an
    /// episode begins is hardly affected, and a run on a hung instance ends when the hang is over and the work is done.
    pub fn run(&mut self, instance: u32, start: Time, nanos: f64) -> Ending {
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
                    if done <= now.until && done < Time::MAX {
                        return self.deliver(instance, done);
                    }
                    left -= now.until.nanos_since(at) / now.slowdown;
                }
            }
            if now.until == Time::MAX {
                return Ending::Never;
            }
            at = now.until;
        }
    }

    /// A completed answer waits until the frontend can be reached.
    fn deliver(&mut self, instance: u32, ready: Time) -> Ending {
        let mut at = ready;
        loop {
            let now = self.condition(instance, at);
            match now.state {
                State::CutOff if now.until == Time::MAX => return Ending::Never,
                State::CutOff => at = now.until,
                State::Down if at > ready => return Ending::Lost { at },
                State::Works | State::Hangs | State::Down => {
                    let name = [WRONG, u64::from(instance), ready.as_nanos()];
                    let wrong = now.wrong > 0.0 && Random::of(self.seed, name).uniform() < now.wrong;
                    return Ending::Answered { at, wrong };
                }
            }
        }
    }

    fn add(&mut self, fault: &Fault, place: Place) {
        if let Fault::Shuffles { concurrent, min_mb, max_mb, link_mbps, factor } = *fault {
            let size = Size { min_mb, max_mb, link_mbps };
            self.shuffles.push(Shuffles::new(concurrent, size, factor, place));
            return;
        }
        let index = place.index as u64;
        let factors: Option<Arc<[f64]>> = match fault {
            Fault::Sizes { factors, .. } => Some(factors.as_slice().into()),
            _ => None,
        };
        for (turn, number) in fault.on().chosen(place).into_iter().enumerate() {
            let instance = &mut self.instances[number as usize];
            instance.sizes.extend(factors.clone());
            match fault {
                Fault::Straggle { share, factor, by, .. } => {
                    let straggle = Straggle { fault: index, share: *share, factor: factor.clone(), by: *by };
                    instance.straggles.push(straggle);
                }
                Fault::Pace { step, series, .. } => {
                    instance.paces.push(Pace::new(series[turn % series.len()].clone(), *step));
                }
                _ => {}
            }
            if let Some((when, stages)) = stages(fault) {
                let draw = Random::of(place.seed, [EPISODES, index, fault.on().times_of(number)]);
                instance.crashes |= stages.first == Effect::Down;
                instance.episodes.push(Episodes::new(when, stages, draw));
            }
        }
    }
}

impl Instance {
    fn follows_queries(&self) -> bool {
        !self.sizes.is_empty() || self.straggles.iter().any(|straggle| straggle.by == By::Query)
    }
}

impl Straggle {
    /// Returns the factor of this name, 1 if it is not affected.
    fn draw<const N: usize>(&self, seed: u64, name: [u64; N]) -> f64 {
        let mut draw = Random::of(seed, name);
        let affected = self.share >= 1.0 || draw.uniform() < self.share;
        if affected { self.factor.sample(&mut draw) } else { 1.0 }
    }
}

impl Condition {
    fn fine() -> Self {
        Self { slowdown: 1.0, state: State::Works, wrong: 0.0, until: Time::MAX }
    }

    fn add(&mut self, effect: Option<Effect>, until: Time) {
        self.until = self.until.min(until);
        match effect {
            None => {}
            Some(Effect::Slow(factor)) => self.slowdown *= factor,
            Some(Effect::Cut) => self.state = self.state.max(State::CutOff),
            Some(Effect::Hung) => self.state = self.state.max(State::Hangs),
            Some(Effect::Down) => self.state = State::Down,
            Some(Effect::Wrong(share)) => self.wrong = 1.0 - (1.0 - self.wrong) * (1.0 - share),
        }
    }
}

/// Returns the parts of an intermittent fault's episodes, and their times.
fn stages(fault: &Fault) -> Option<(When, Stages)> {
    let (first, then) = match fault {
        Fault::Slow { factor, .. } => (Effect::Slow(*factor), None),
        Fault::Hang { .. } => (Effect::Hung, None),
        Fault::Partition { .. } => (Effect::Cut, None),
        Fault::Wrong { share, .. } => (Effect::Wrong(*share), None),
        Fault::Crash { slow_start, slow_start_for, .. } => {
            let slow = (Effect::Slow(*slow_start), *slow_start_for);
            (Effect::Down, (!slow_start_for.is_zero()).then_some(slow))
        }
        _ => return None,
    };
    Some((fault.when()?.clone(), Stages { first, then }))
}

const WRONG: u64 = 0x3106;
const STRAGGLE: u64 = 0x57A6;
const EPISODES: u64 = 0xE915;
const OWN: u64 = 0x0714;
const QUERY: u64 = 0x9E47;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Targets;

    const MS: f64 = 1e6;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn schedule(faults: Vec<Fault>, seed: u64) -> Schedule {
        Schedule::new(&Faults(faults), seed, 18).unwrap()
    }

    fn episodes(on: Targets) -> Fault {
        Fault::Slow { factor: 5.0, when: When::Episodes { share: 0.25, length: Duration::from_secs(2) }, on }
    }

    fn shuffles() -> Fault {
        Fault::Shuffles { concurrent: 4, min_mb: 128.0, max_mb: 256.0, link_mbps: 1000.0, factor: 2.0 }
    }

    fn straggle() -> Fault {
        let factor = Distribution::Uniform { min: 5.0, max: 10.0 };
        Fault::Straggle { share: 0.01, factor, by: By::Run, on: Targets::Each }
    }

    #[test]
    fn condition_does_not_depend_on_earlier_requests() {
        let faults = || vec![episodes(Targets::Each), shuffles(), straggle()];
        let ask = |schedule: &mut Schedule, instance, ms| {
            (schedule.condition(instance, at(ms)), schedule.straggling(instance, at(ms)))
        };
        // One schedule is read in order of time, one backwards, one for a single instance while it forgets the past.
        let (mut forth, mut back) = (schedule(faults(), 7), schedule(faults(), 7));
        let mut one = schedule(faults(), 7);
        let mut questions: Vec<(u32, u64)> =
            (0..400).flat_map(|i| (0..18).map(move |instance| (instance, i * 173))).collect();
        let in_order: Vec<_> = questions.iter().map(|(i, ms)| ask(&mut forth, *i, *ms).0.slowdown).collect();
        questions.reverse();
        let mut backwards: Vec<_> =
            questions.iter().map(|(i, ms)| ask(&mut back, *i, *ms).0.slowdown).collect();
        backwards.reverse();
        assert_eq!(in_order, backwards);
        for i in 0..400 {
            one.forget(5, at(i * 173));
            assert_eq!(ask(&mut one, 5, i * 173), ask(&mut back, 5, i * 173));
        }
        let other: Vec<_> =
            questions.iter().map(|(i, ms)| ask(&mut schedule(faults(), 8), *i, *ms).0.slowdown).collect();
        assert_ne!(in_order, other, "another seed gives other faults");
    }

    #[test]
    fn condition_is_constant_until_its_stated_end() {
        let mut schedule = schedule(vec![episodes(Targets::Each), shuffles()], 3);
        let mut now = Time::ZERO;
        for _ in 0..500 {
            let here = schedule.condition(2, now);
            let between = Time::from_nanos((now.as_nanos() + here.until.as_nanos()) / 2);
            assert_eq!(schedule.condition(2, between).slowdown, here.slowdown);
            now = here.until;
        }
    }

    #[test]
    fn instances_have_separate_times_unless_shared() {
        let slow = |on, ms| {
            let mut schedule = schedule(vec![episodes(on)], 5);
            (0..18).map(|i| schedule.condition(i, at(ms)).slowdown > 1.0).collect::<Vec<_>>()
        };
        let together = |ms| slow(Targets::Together(1.0), ms);
        assert!((0..40).all(|i| together(i * 700).iter().all(|slow| *slow == together(i * 700)[0])));
        assert!((0..40).any(|i| together(i * 700)[0]) && (0..40).any(|i| !together(i * 700)[0]));
        assert!((0..40).any(|i| slow(Targets::Each, i * 700).iter().any(|slow| *slow)));
        let some = |ms| slow(Targets::Some(0.5), ms).iter().filter(|slow| **slow).count();
        assert!((0..40).all(|i| some(i * 700) <= 9));
    }

    #[test]
    fn stragglers_affect_their_share_of_the_runs() {
        let schedule = schedule(vec![straggle()], 2);
        let factors: Vec<f64> =
            (0..50_000).map(|i| schedule.straggling((i % 18) as u32, at(i / 18))).collect();
        let slow: Vec<f64> = factors.into_iter().filter(|factor| *factor > 1.0).collect();
        assert!((400..600).contains(&slow.len()), "{}", slow.len());
        assert!(slow.iter().all(|factor| (5.0..=10.0).contains(factor)));
    }

    fn drawn(by: By, on: Targets) -> Schedule {
        let factor = Distribution::Lognormal { median: 1.0, sigma: 0.35 };
        schedule(vec![Fault::Straggle { share: 1.0, factor, by, on }], 4)
    }

    #[test]
    fn factor_by_query_is_equal_on_each_affected_instance_at_each_time() {
        let schedule = drawn(By::Query, Targets::Each);
        let of = |query| schedule.length(0, query);
        assert!(schedule.follows_queries());
        for query in 0..200 {
            assert!((0..18).all(|instance| schedule.length(instance, query) == of(query)));
            assert_eq!(schedule.straggling(3, at(query)), 1.0, "the run itself draws nothing");
        }
        let mut factors: Vec<f64> = (0..20_000).map(of).collect();
        factors.sort_by(f64::total_cmp);
        let (median, p84) = (factors[10_000], factors[16_827]);
        assert!((median - 1.0).abs() < 0.02 && (p84 / 0.35f64.exp() - 1.0).abs() < 0.02, "{median} {p84}");
        let longest = [7, 8, 9].map(of).into_iter().fold(0.0, f64::max);
        assert_eq!(schedule.longest(5, [7, 8, 9]), longest);
        let one = drawn(By::Query, Targets::Only(vec![2]));
        assert!(one.longest(2, [1]) != 1.0 && one.longest(3, [1]) == 1.0);
    }

    #[test]
    fn factor_by_instance_is_drawn_once() {
        let schedule = drawn(By::Instance, Targets::Each);
        let of = |instance| schedule.straggling(instance, at(0));
        let same = |instance| (1..50).all(|s| schedule.straggling(instance, at(s * 977)) == of(instance));
        assert!((0..18).all(same) && (1..18).all(|instance| of(instance) != of(0)));
    }

    #[test]
    fn sizes_are_taken_in_the_order_of_queries() {
        let sizes = Fault::Sizes { factors: vec![1.0, 3.0, 0.5], file: None, on: Targets::Each };
        let schedule = schedule(vec![sizes], 1);
        assert_eq!([0, 1, 2, 3, 4].map(|query| schedule.length(8, query)), [1.0, 3.0, 0.5, 1.0, 3.0]);
        assert_eq!(schedule.longest(8, [2, 4]), 3.0);
    }

    #[test]
    fn instances_take_the_series_of_a_pace_in_turn() {
        let slow = |on| {
            let series = vec![vec![2.0, 3.0], vec![5.0]];
            let mut schedule =
                schedule(vec![Fault::Pace { step: Duration::from_secs(1), series, file: None, on }], 6);
            move |instance, ms| schedule.condition(instance, at(ms)).slowdown
        };
        let mut only = slow(Targets::Only(vec![9, 4, 11]));
        assert_eq!([9, 4, 11, 0].map(|instance| only(instance, 500)), [2.0, 5.0, 2.0, 1.0]);
        assert_eq!([9, 4, 11, 0].map(|instance| only(instance, 1500)), [3.0, 5.0, 3.0, 1.0]);
        let mut each = slow(Targets::Each);
        let fives = (0..18).filter(|instance| each(*instance, 0) == 5.0).count();
        assert_eq!(fives, 9, "half of the instances have each of the two series");
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
