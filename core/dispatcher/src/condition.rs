//! The condition of an instance, as operators see it: well, slow, silent, failing, unreachable, wrong or flapping. No decision
//! depends on it. But [`Watch`] also keeps when the instance last answered, and by that ([`Watch::answers_beside`]) the rest of the
//! dispatcher tells an instance that hangs from one of whose jobs a single one hangs.
//!
//! Problem: a server that hangs while its health check answers was named after two minutes, and its healthy neighbours before it.
//! Its return was announced when a probe was answered, again and again.
//!
//! Choice: one machine for each instance, fed with what the dispatcher knows about it, and asked after each of its runs and looks.
//! A trouble is named when it is seen, once a minute while it lasts, and once more when the instance has answered real requests. A
//! third trouble within a minute is named as flapping, until a minute has passed without one.
//!
//! An instance is slow if its latest runs in a row are longer than chance explains: the product of the parts of all runs that take
//! so long is below one in ten million. Speeds that placement uses are known sooner, but one in ten thousand pairs of healthy runs
//! contradicts them where run times vary.

use std::mem::discriminant;
use std::time::Duration;

use crate::Time;
use crate::dispatcher::{Action, Dispatcher};
use crate::health::Trouble;
use crate::instance::InstanceKey;
use crate::model::Model;
use crate::query::Failure;
use crate::suits::Books;

/// What is wrong with an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    /// It answers as usual. After a trouble: it has answered real requests again.
    Well,
    /// Its runs take so many times as long as usual.
    Slow(f32),
    /// It answers nothing: its oldest run has this age, where one usually takes the other time.
    Silent {
        /// The age of its oldest run, or how long it was waited for.
        oldest: Duration,
        /// The usual time.
        usual: Duration,
    },
    /// Runs of one of its models fail, or of all.
    Failing,
    /// It does not take jobs.
    Unreachable,
    /// One of its models answers wrongly.
    Wrong,
    /// It fails and recovers, so many times within a minute.
    Flapping(u8),
}

/// While a trouble lasts it is named once in this time, and so many troubles within it are named as flapping.
const MINUTE: Duration = Duration::from_secs(60);
const FALLS: usize = 3;

/// The answers in a row after which a troubled instance is well.
const ANSWERS: u8 = 2;

/// The logarithm of the probability below which long runs in a row are not chance.
const CHANCE: f32 = -16.1;

/// The runs that a recent time is the mean of, and how much slower than the median instance a slow one is at least.
const RECENT: f32 = 4.0;
const SLOWER: f32 = 2.0;

/// A run that at least this part of all runs exceed is no long one.
const USUAL: f64 = 0.25;

/// A run of this age is named if it is older than any before. An instance is named as slow once it has been for so long: a machine
/// that is short of processors for a moment is no news.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// What an operator has been told about an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) condition: Condition,
    told: Time,
    /// When the latest troubles began.
    falls: [Time; FALLS],
    /// Whether the latest trouble lasts.
    is_down: bool,
    /// Answers since the latest trouble, and when the last one came.
    answers: u8,
    answered: Time,
    /// The logarithm of the probability of the latest long runs, and since when they are too many for chance.
    doubt: f32,
    slow_since: Time,
    /// What its latest runs took in the mean, in usual times.
    recent: f32,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            condition: Condition::Well,
            told: Time::ZERO,
            falls: [Time::ZERO; FALLS],
            is_down: false,
            answers: 0,
            answered: Time::ZERO,
            doubt: 0.0,
            slow_since: Time::MAX,
            recent: 1.0,
        }
    }
}

impl Watch {
    /// It answered in so many usual times, longer than all but this part of the runs.
    pub(crate) fn answered(&mut self, now: Time, times: f32, part: f64) {
        self.answered = now;
        self.answers = self.answers.saturating_add(1);
        self.recent += (times - self.recent) / RECENT;
        if part >= USUAL {
            (self.doubt, self.slow_since) = (0.0, Time::MAX);
            return;
        }
        self.doubt += (part.max(1e-6) as f32).ln();
        if self.doubt < CHANCE {
            self.slow_since = self.slow_since.min(now);
            self.failed();
        }
    }

    fn is_slow(&self, now: Time) -> bool {
        now.since(self.slow_since) >= PATIENCE
    }

    /// Its latest run failed, or was given up.
    pub(crate) fn failed(&mut self) {
        self.answers = 0;
    }

    /// Whether it answers others while a run that began then lasts: in the second half of the run's age it did.
    pub(crate) fn answers_beside(&self, now: Time, began: Time) -> bool {
        self.silence(now) < now.since(began) / 2
    }

    /// How long it has answered nothing.
    pub(crate) fn silence(&self, now: Time) -> Duration {
        now.since(self.answered)
    }

    /// The trouble of an instance: of these, the first that there is. `others` is the recent time at the median instance: if all
    /// are slow at the same time, none of them is at fault.
    pub(crate) fn trouble(
        &self,
        now: Time,
        silent: Option<(Duration, Duration)>,
        other: Option<Trouble>,
        others: f32,
    ) -> Condition {
        match (silent, other) {
            (Some((oldest, usual)), _) => Condition::Silent { oldest, usual },
            (None, Some(Trouble::Fails(Failure::Unsent))) => Condition::Unreachable,
            (None, Some(Trouble::Fails(_))) => Condition::Failing,
            (None, Some(Trouble::Wrong)) => Condition::Wrong,
            (None, _) if self.is_slow(now) && self.recent > SLOWER * others => Condition::Slow(self.recent),
            (None, _) => Condition::Well,
        }
    }

    /// Takes note of how it is. Returns what should be told.
    pub(crate) fn note(&mut self, now: Time, trouble: Condition) -> Option<Condition> {
        let is_well = trouble == Condition::Well;
        let next = if is_well {
            self.is_down &= self.answers < ANSWERS;
            let flaps = matches!(self.condition, Condition::Flapping(_));
            if self.is_down || (flaps && now.since(self.falls[FALLS - 1]) < MINUTE) {
                return None;
            }
            Condition::Well
        } else {
            if !self.is_down {
                self.falls.rotate_left(1);
                (self.falls[FALLS - 1], self.is_down, self.answers) = (now, true, 0);
            }
            let oldest = self.falls[0];
            let flaps = oldest > Time::ZERO && now.since(oldest) < MINUTE;
            if flaps { Condition::Flapping(FALLS as u8) } else { trouble }
        };
        // Other figures of the same trouble are no news.
        let is_same = discriminant(&self.condition) == discriminant(&next);
        if is_same && (is_well || now.since(self.told) < MINUTE) {
            return None;
        }
        (self.condition, self.told) = (next, now);
        Some(next)
    }
}

impl<P: Clone, O> Dispatcher<P, O> {
    /// Takes note of how an instance is, and tells it if it is news.
    pub(crate) fn examine(&mut self, now: Time, key: InstanceKey) {
        let Some(instance) = self.books.instances.get(key) else { return };
        let Some(model) = instance.serves.first().and_then(|served| self.books.models.get(served.model))
        else {
            return;
        };
        let oldest = instance.jobs.first().and_then(|job| self.books.jobs.get(*job));
        let age = oldest.map_or(Duration::ZERO, |job| now.since(job.began));
        let hangs = age >= PATIENCE && self.books.may_hang(key, now);
        let troubles = || instance.serves.iter().filter_map(|served| served.health.trouble);
        let other = troubles().find(|trouble| *trouble != Trouble::Silent);
        let usual =
            oldest.map_or(Some((model, 1)), |job| Some((self.books.models.get(job.model)?, job.work)));
        let usual = usual.and_then(|(model, work)| model.times.usual(1.0, work)).unwrap_or_default();
        let silence = if hangs { age } else { instance.watch.silence(now) };
        let is_silent = hangs || troubles().any(|trouble| trouble == Trouble::Silent);
        let silent = is_silent.then(|| (silence, Duration::from_nanos(usual as u64)));
        let is_busy = !instance.jobs.is_empty();
        let others = if instance.watch.is_slow(now) { self.books.recent(model) } else { 1.0 };
        let Some(instance) = self.books.instances.get_mut(key) else { return };
        let trouble = instance.watch.trouble(now, silent, other, others);
        if let Some(condition) = instance.watch.note(now, trouble) {
            self.actions.push(Action::Tell { instance: key, condition });
        }
        if is_busy || trouble != Condition::Well {
            self.look_at_instance(key, now + PATIENCE);
        }
    }
}

impl<P, O> Books<P, O> {
    /// The recent time at a model's median instance, in usual times.
    fn recent(&self, model: &Model) -> f32 {
        let own = model.instances.iter().filter_map(|at| self.instances.get(*at));
        let mut recent: Vec<f32> = own.map(|instance| instance.watch.recent).collect();
        let middle = recent.len().saturating_sub(1) / 2;
        recent.sort_unstable_by(f32::total_cmp);
        recent.get(middle).copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    const SILENT: Condition =
        Condition::Silent { oldest: Duration::from_secs(2), usual: Duration::from_millis(100) };

    #[test]
    fn trouble_is_named_at_once_then_each_minute_and_its_end_once() {
        let mut watch = Watch::default();
        (7..10).for_each(|now| watch.answered(at(now), 1.0, 0.5));
        assert_eq!(watch.note(at(10), Condition::Well), None);
        let told: Vec<u64> = (11..140).filter(|now| watch.note(at(*now), SILENT).is_some()).collect();
        assert_eq!(told, [11, 71, 131]);
        assert_eq!(watch.note(at(141), Condition::Well), None, "it has answered nothing");
        watch.answered(at(142), 1.0, 0.5);
        assert_eq!(watch.note(at(142), Condition::Well), None);
        watch.answered(at(143), 1.0, 0.5);
        assert_eq!(watch.note(at(143), Condition::Well), Some(Condition::Well));
        assert_eq!(watch.note(at(144), Condition::Well), None);
    }

    #[test]
    fn third_trouble_within_a_minute_is_flapping_until_a_quiet_minute() {
        let mut watch = Watch::default();
        let mut told = Vec::new();
        for now in 100..300 {
            let fails = now < 140 && now % 10 < 3;
            if fails {
                watch.failed();
            } else {
                watch.answered(at(now), 1.0, 0.5);
            }
            let trouble =
                watch.trouble(at(now), None, fails.then_some(Trouble::Fails(Failure::Instance)), 1.0);
            told.extend(watch.note(at(now), trouble).map(|condition| (now, condition)));
        }
        let (failing, well) = (Condition::Failing, Condition::Well);
        let flapping = Condition::Flapping(3);
        assert_eq!(
            told,
            [(100, failing), (104, well), (110, failing), (114, well), (120, flapping), (190, well)]
        );
    }

    #[test]
    fn runs_beyond_all_others_for_a_second_are_slow_and_chance_is_not() {
        let mut watch = Watch::default();
        let slow = |watch: &Watch, now| watch.trouble(at(now), None, None, 1.0) != Condition::Well;
        watch.answered(at(1), 6.0, 1e-4);
        assert!(!slow(&watch, 9));
        watch.answered(at(1), 6.0, 1e-4);
        assert!(!slow(&watch, 1) && slow(&watch, 2), "for a second");
        assert_eq!(watch.trouble(at(2), None, None, 3.0), Condition::Well, "the others are slow, too");
        watch.answered(at(3), 1.0, 0.6);
        assert!(!slow(&watch, 9), "one usual run");
        for _ in 0..3 {
            watch.answered(at(9), 5.0, 0.01);
        }
        assert!(!slow(&watch, 19), "three runs at the 99th percentile may be chance");
    }
}
