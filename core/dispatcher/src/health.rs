//! The health of a model at an instance: whether it may get queries there, after failures in a row or a silence.
//!
//! A model that failed three times in a row at an instance is out there, because an input or a broken file stops one model and not
//! the others. If a job was given up because it lasted longer than any run before, all models of the instance are out: who hangs runs
//! nothing. After a pause a model is tried with a copy that no query waits for, and only an answer to that copy, or to any other
//! real request, brings it back: a server whose health check answers while its engine hangs must not return. The pause
//! doubles with each failed trial. Who answers wrongly is out for a minute, whatever else it answers. Slow answers put nothing out: slow instances stay in service, and `suits` decides what they get.

use std::time::Duration;

use crate::query::Failure;
use crate::time::Time;

/// When instances are taken out of service, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthSettings {
    /// Failures in a row.
    pub failures: u8,
    /// The first pause before a trial.
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// The share of a model's instances that always stays in service: if most of them fail, they are hardly the cause.
    pub least_in_service: f64,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            failures: 3,
            backoff: Duration::from_millis(250),
            backoff_max: Duration::from_secs(2),
            least_in_service: 0.3,
        }
    }
}

/// No pause is shorter, whatever is configured: trials without a pause would follow each other for ever.
const LEAST: Duration = Duration::from_millis(1);

/// The health of a model at an instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    failures: u8,
    out: Option<Out>,
    /// What is wrong, if it is out or should be.
    trouble: Option<Trouble>,
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

    /// It answered a real request. Returns whether that brings it back into service.
    pub(crate) fn answered(&mut self, now: Time) -> bool {
        if self.is_barred(now) { false } else { !std::mem::take(self).in_service() }
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
        let is_bad = self.out.is_some() || self.failures >= settings.failures;
        self.trouble = is_bad.then_some(Trouble::Fails(failure));
        is_bad
    }

    /// Its trouble, if it is out of service or should be.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    /// Takes it out of service, or prolongs that.
    pub(crate) fn take_out(&mut self, now: Time, trouble: Trouble, settings: &HealthSettings) {
        self.trouble = Some(trouble);
        self.begin_trial(now, settings);
        if trouble == Trouble::Wrong {
            self.out = Some(Out { until: now + WRONG_FOR, pause: settings.backoff, is_firm: true });
        }
    }

    /// A trial begins: if nothing is heard of it, the next one follows after a longer pause.
    pub(crate) fn begin_trial(&mut self, now: Time, settings: &HealthSettings) {
        let pause = self.out.map_or(settings.backoff, |out| (2 * out.pause).min(settings.backoff_max));
        let pause = pause.max(LEAST);
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
        health.take_out(at(0), Trouble::Silent, &settings);
        assert!(!health.in_service() && !health.wants_trial(at(249)) && health.wants_trial(at(250)));
        health.begin_trial(at(250), &settings);
        assert!(failed(&mut health, 260) && !health.wants_trial(at(749)) && health.wants_trial(at(750)));
        assert!(health.answered(at(300)));
        assert!(health.in_service() && !failed(&mut health, 300), "it begins anew");
    }

    #[test]
    fn wrong_answers_put_it_out_for_a_minute_whatever_it_answers() {
        let (settings, mut health) = (HealthSettings::default(), Health::default());
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        health.take_out(at(0), Trouble::Wrong, &settings);
        assert!(!health.answered(at(59_999)) && !health.failed(at(59_999), Failure::Model, &settings));
        assert!(!health.wants_trial(at(59_999)) && health.wants_trial(at(60_000)));
        assert_eq!(health.trouble(), Some(Trouble::Wrong));
        health.begin_trial(at(60_000), &settings);
        assert_eq!(health.trial_at(), Some(at(60_500)), "a trial that fails is repeated like any other");
        assert!(health.answered(at(60_100)));
    }
}
