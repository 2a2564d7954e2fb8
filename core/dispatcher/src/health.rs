//! The health of a model at an instance: whether it may get queries there, after failures in a row or a silence.
//!
//! A model that failed three times in a row at an instance is out there, because an input or a broken file stops one model and not
//! the others. If a job was given up because it lasted longer than any run before, all models of the instance are out: who hangs runs
//! nothing. After a pause a model is tried with a copy that no query waits for, or with a query for which no instance in service has
//! room. Only an answer to a real request brings it back: a server whose health check answers while its engine hangs must not return.
//! The pause doubles with each failed trial. Where the policy sends no such copies a probe brings it back too, and the next failure
//! puts it out again. Who answers wrongly is out for a minute, whatever else it answers. Nothing is put out where too few others would
//! stay in service. Slow answers put nothing out: slow instances stay in service, and `suits` decides what they get.

use std::time::Duration;

use crate::Time;
use crate::query::Failure;

/// When instances are taken out of service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthSettings {
    /// Failures in a row.
    pub failures: u8,
    /// The share of a model's instances that always stays in service, at least one: if most of them fail, they are hardly the cause.
    pub least_in_service: f64,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self { failures: 3, least_in_service: 0.3 }
    }
}

/// Failures of the model in a row, each of which may be the fault of its query: if half of all queries break the model, an instance
/// that works has so many once in a million times.
const UNLIKELY: u8 = 20;

/// The first pause before a trial, and the longest: a trial every two seconds costs nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The health of a model at an instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    failures: u8,
    /// Failures in a row that may be the fault of their queries, and when the first one was.
    suspected: u8,
    suspected_since: Time,
    out: Option<Out>,
    /// The last pause, if only a probe has ended it.
    on_trial: Option<Duration>,
    /// What is wrong, if it is out of service or should be.
    pub(crate) trouble: Option<Trouble>,
}

/// What is wrong with a model at an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Its runs fail.
    Fails(Failure),
    /// The instance answers nothing.
    Silent,
    /// Its answers are wrong.
    Wrong,
}

/// How long wrong answers put a model out at an instance: its files may be replaced, and a trial does not show whether they were.
const WRONG_FOR: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
struct Out {
    /// When it is tried.
    until: Time,
    pause: Duration,
    /// Whether answers before its trial bring it back.
    is_firm: bool,
}

impl Health {
    pub(crate) fn in_service(&self) -> bool {
        self.out.is_none()
    }

    /// Whether it is out because the instance answers nothing.
    pub(crate) fn is_silent(&self) -> bool {
        self.out.is_some() && self.trouble == Some(Trouble::Silent)
    }

    /// Whether it is out and should be tried now.
    pub(crate) fn wants_trial(&self, now: Time) -> bool {
        self.out.is_some_and(|out| out.until <= now)
    }

    /// When it should be tried; `None` while it is in service.
    pub(crate) fn trial_at(&self) -> Option<Time> {
        self.out.map(|out| out.until)
    }

    /// The same while no instance is in service: after the first pause, because a query would wait for it.
    pub(crate) fn soonest_trial(&self) -> Option<Time> {
        self.out.map(|out| match out.is_firm {
            true => out.until,
            false => out.until.earlier(out.pause.saturating_sub(FIRST_PAUSE).as_nanos() as f64),
        })
    }

    /// It answered a real request. Returns whether that brings it back into service.
    pub(crate) fn answered(&mut self, now: Time) -> bool {
        if self.is_barred(now) { false } else { !std::mem::take(self).in_service() }
    }

    /// A probe said that it works. Returns whether that brings it back into service.
    pub(crate) fn probed(&mut self, now: Time) -> bool {
        let pause = self.out.map(|out| out.pause);
        let is_back = self.answered(now);
        self.on_trial = pause.filter(|_| is_back);
        is_back
    }

    /// Whether neither answers nor failures change anything before its trial.
    fn is_barred(&self, now: Time) -> bool {
        self.out.is_some_and(|out| out.is_firm && now < out.until)
    }

    /// A failure at this instance. Returns whether it should be taken out of service.
    pub(crate) fn failed(&mut self, now: Time, failure: Failure, settings: &HealthSettings) -> bool {
        if self.is_barred(now) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        let is_bad = self.out.is_some() || self.on_trial.is_some() || self.failures >= settings.failures;
        self.trouble = is_bad.then_some(Trouble::Fails(failure));
        is_bad
    }

    /// The model failed on a query that no other instance will run. `answered` is when the model last answered another one. Returns
    /// whether such failures show that the instance is at fault.
    pub(crate) fn may_have_failed(&mut self, now: Time, answered: Time) -> bool {
        if self.suspected == 0 {
            self.suspected_since = now;
        }
        self.suspected = self.suspected.saturating_add(1);
        let is_unlikely = self.suspected >= UNLIKELY && answered >= self.suspected_since;
        self.on_trial.is_some() || is_unlikely
    }

    /// Takes it out of service, or prolongs that.
    pub(crate) fn take_out(&mut self, now: Time, trouble: Trouble) {
        self.trouble = Some(trouble);
        self.begin_trial(now);
        if trouble == Trouble::Wrong {
            self.out = Some(Out { until: now + WRONG_FOR, pause: FIRST_PAUSE, is_firm: true });
        }
    }

    /// A trial begins: if nothing is heard of it, the next one follows after a longer pause.
    pub(crate) fn begin_trial(&mut self, now: Time) {
        let last = self.out.map(|out| out.pause).or(self.on_trial);
        let pause = last.map_or(FIRST_PAUSE, |pause| (2 * pause).min(LONGEST_PAUSE));
        self.out = Some(Out { until: now + pause, pause, is_firm: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_until_a_real_answer() {
        let (settings, mut health) = (HealthSettings::default(), Health::default());
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let failed = |health: &mut Health, millis| health.failed(at(millis), Failure::Instance, &settings);
        assert_eq!([(); 3].map(|()| failed(&mut health, 0)), [false, false, true]);
        health.take_out(at(0), Trouble::Silent);
        assert!(!health.in_service() && !health.wants_trial(at(249)) && health.wants_trial(at(250)));
        health.begin_trial(at(250));
        assert!(failed(&mut health, 260) && !health.wants_trial(at(749)) && health.wants_trial(at(750)));
        assert!(health.answered(at(300)));
        assert!(health.in_service() && !failed(&mut health, 300), "it begins anew");
    }

    #[test]
    fn failures_that_may_be_their_queries_fault_count_once_they_are_unlikely() {
        let (settings, at) = (HealthSettings::default(), |millis: u64| Time::from_nanos(millis * 1_000_000));
        let failures = |answered: u64| {
            let mut health = Health::default();
            (10..100).take_while(|now| !health.may_have_failed(at(*now), at(answered))).count()
        };
        assert_eq!([failures(9), failures(10), failures(20)], [90, 19, 19], "if another instance answers");
        let mut health = Health::default();
        health.take_out(at(0), Trouble::Fails(Failure::Model));
        assert!(health.probed(at(250)) && health.may_have_failed(at(251), at(0)));
        assert!(health.failed(at(251), Failure::Model, &settings), "one is enough after a probe");
        health.take_out(at(251), Trouble::Fails(Failure::Model));
        assert_eq!(health.trial_at(), Some(at(751)));
        assert_eq!(health.soonest_trial(), Some(at(501)));
        assert!(health.probed(at(751)) && !health.answered(at(760)));
        assert!(!health.failed(at(761), Failure::Model, &settings), "an answer ends it");
    }

    #[test]
    fn wrong_answers_put_it_out_for_a_minute_whatever_it_answers() {
        let (settings, mut health) = (HealthSettings::default(), Health::default());
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        health.take_out(at(0), Trouble::Wrong);
        assert!(!health.answered(at(59_999)) && !health.failed(at(59_999), Failure::Model, &settings));
        assert!(!health.wants_trial(at(59_999)) && health.wants_trial(at(60_000)));
        assert_eq!(health.trouble, Some(Trouble::Wrong));
        health.begin_trial(at(60_000));
        assert_eq!(health.trial_at(), Some(at(60_500)), "a trial that fails is repeated like any other");
        assert!(health.answered(at(60_100)));
    }
}
