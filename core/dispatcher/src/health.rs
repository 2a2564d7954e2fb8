//! The health of an instance: whether it may get queries, after failures in a row or a silence.
//!
//! An instance that failed three times in a row, or whose job was given up because it lasted longer than any run before, is
//! out. After a pause it is tried with a copy that no query waits for, and only an answer to that copy, or to any other
//! real request, brings it back: a server whose health check answers while its engine hangs must not return. The pause
//! doubles with each failed trial. An instance that is out only for slow answers does not exist: slow instances stay in
//! service, and `suits` decides what they get.

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

/// The health of one instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    failures: u8,
    out: Option<Out>,
    /// The latest failure; none while it answers, or after a silence.
    cause: Option<Failure>,
}

#[derive(Clone, Copy, Debug)]
struct Out {
    /// When it is tried.
    until: Time,
    pause: Duration,
}

impl Health {
    pub(crate) fn in_service(&self) -> bool {
        self.out.is_none()
    }

    /// Whether it is out and should be tried now.
    pub(crate) fn wants_trial(&self, now: Time) -> bool {
        self.out.is_some_and(|out| out.until <= now)
    }

    /// When it should be tried; `None` while it is in service.
    pub(crate) fn trial_at(&self) -> Option<Time> {
        self.out.map(|out| out.until)
    }

    /// It answered a real request.
    pub(crate) fn answered(&mut self) {
        *self = Self::default();
    }

    /// A failure of its own. Returns whether it should be taken out of service.
    pub(crate) fn failed(&mut self, failure: Failure, settings: &HealthSettings) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.cause = Some(failure);
        self.out.is_some() || self.failures >= settings.failures
    }

    /// Its trouble: `Some(None)` is a silence.
    pub(crate) fn trouble(&self, settings: &HealthSettings) -> Option<Option<Failure>> {
        (self.out.is_some() || self.failures >= settings.failures).then_some(self.cause)
    }

    /// Takes it out of service, or prolongs that after a failed trial.
    pub(crate) fn take_out(&mut self, now: Time, settings: &HealthSettings) {
        let pause = self.out.map_or(settings.backoff, |out| (2 * out.pause).min(settings.backoff_max));
        self.out = Some(Out { until: now + pause, pause });
    }

    /// A trial begins: if nothing is heard of it, the next one follows after a longer pause.
    pub(crate) fn begin_trial(&mut self, now: Time, settings: &HealthSettings) {
        self.take_out(now, settings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_until_a_real_answer() {
        let (settings, mut health) = (HealthSettings::default(), Health::default());
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        assert_eq!([(); 3].map(|()| health.failed(Failure::Instance, &settings)), [false, false, true]);
        health.take_out(at(0), &settings);
        assert!(!health.in_service() && !health.wants_trial(at(249)) && health.wants_trial(at(250)));
        health.begin_trial(at(250), &settings);
        assert!(
            health.failed(Failure::Instance, &settings)
                && !health.wants_trial(at(749))
                && health.wants_trial(at(750))
        );
        health.answered();
        assert!(health.in_service() && !health.failed(Failure::Instance, &settings), "it begins anew");
    }
}
