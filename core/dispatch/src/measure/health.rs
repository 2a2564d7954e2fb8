//! Health of an instance: outlier ejection with probes, as a circuit breaker has.
//!
//! One slow answer proves little; two in a row mean that the instance is slow. A readmitted instance is on trial:
//! one more bad answer ejects it again, for twice as long. Several good answers clear its record. Whether the
//! others can take the load of an ejected instance is decided in `rules::affordable`.
//!
//! Slowness and wrong answers belong to the instance, failures to one of its models, so each model has such a
//! record too. A failure of a model may be the query's fault. So it counts against the instance only after another
//! instance answered a query on which it failed. If the others hang or answer other queries, nothing is known. If queries
//! are tried once, any answer of another instance counts.
//! Rejected: a probe of the suspect (a model that breaks on large inputs still answers a small probe).
//!
//! If clients cancel first, slow and hung instances cannot be told apart: jobs end without an answer. A slow
//! instance stays if the others are too busy, which is pointless for a hung one. So that instance is probed while
//! it stays in service, and ejected if it does not answer. If it is ejected meanwhile, the question stands, and
//! the instance is not recalled before its answer. Otherwise a hung instance would be probed anew each time and
//! never time out.

use std::time::Duration;

use crate::api::{EjectionSettings, Reason, Time, times};

/// Runs that the share of failures remembers.
const REMEMBERED: u8 = 64;

/// The chance below which failures in a row are the fault of their instance.
const CHANCE: f32 = 1e-6;

/// The same on trial: one failure suffices where the others have none.
const ON_TRIAL: f32 = 0.02;

/// Good answers that clear the record.
const CLEARED_BY: u8 = 8;

/// The shortest wait for a probe.
const LEAST_BACKOFF: Duration = Duration::from_millis(1);

/// The record of one instance, or of one of its models.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Health {
    slow: u8,
    /// It returned nothing when it was last found slow.
    silent: bool,
    /// The deadline of a probe in service that asks whether it hangs.
    question: Option<Time>,
    failures: u8,
    /// Failures that may be the query's fault.
    suspected: u8,
    /// One of these was the instance's fault.
    confirmed: bool,
    /// The share of such failures among its latest runs, and their number.
    breaks: f32,
    runs: u8,
    good: u8,
    /// The wait before the probe of the last ejection; none when the record is clear.
    backoff: Option<Duration>,
    state: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    InService,
    /// Out of service, to be probed at a time.
    Ejected {
        probe_at: Time,
        reason: Reason,
    },
    /// A probe is under way; it fails at a deadline.
    Probed {
        until: Time,
        reason: Reason,
    },
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            slow: 0,
            silent: false,
            question: None,
            failures: 0,
            suspected: 0,
            confirmed: false,
            breaks: 0.0,
            runs: 0,
            good: 0,
            backoff: None,
            state: Standing::InService,
        }
    }

    fn note_run(&mut self, broke: bool) {
        self.runs = (self.runs + 1).min(REMEMBERED);
        self.breaks += (f32::from(u8::from(broke)) - self.breaks) / f32::from(self.runs);
    }

    /// The share of its latest runs on which the model failed.
    pub(crate) fn breaks(&self) -> f32 {
        self.breaks
    }

    /// Whether failures in a row are too many for chance, if this share of runs fails.
    pub(crate) fn breaks_beyond(&self, share: f32) -> bool {
        // One that was ejected for failures is on trial.
        let chance = if self.backoff.is_some() { ON_TRIAL } else { CHANCE };
        share.powi(i32::from(self.suspected)) <= chance
    }

    pub(crate) fn in_service(&self) -> bool {
        self.state == Standing::InService
    }

    /// Whether its last answer was slow.
    pub(crate) fn was_slow(&self) -> bool {
        self.slow > 0
    }

    /// Whether it returned nothing when it was last found slow.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether slowness is the only reason for its ejection.
    pub(crate) fn out_for_slowness(&self) -> bool {
        self.out_for() == Some(Reason::Slow)
    }

    /// The reason for its ejection, if it is out of service.
    pub(crate) fn out_for(&self) -> Option<Reason> {
        match self.state {
            Standing::InService => None,
            Standing::Ejected { reason, .. } | Standing::Probed { reason, .. } => Some(reason),
        }
    }

    /// The time of its next probe; `None` in service and while a probe is under way.
    pub(crate) fn probe_at(&self) -> Option<Time> {
        if let Standing::Ejected { probe_at, .. } = self.state { Some(probe_at) } else { None }
    }

    /// Notes an answer, slow or not.
    pub(crate) fn answered(&mut self, slow: bool, settings: &EjectionSettings) -> Option<Reason> {
        (self.failures, self.suspected, self.confirmed, self.silent) = (0, 0, false, false);
        self.note_run(false);
        if slow {
            self.good = 0;
            self.slow = self.slow.saturating_add(1);
            return (self.slow >= settings.slow_answers.get()).then_some(Reason::Slow);
        }
        self.slow = 0;
        self.good = self.good.saturating_add(1);
        if self.good >= CLEARED_BY {
            self.backoff = None;
        }
        None
    }

    /// Notes a job that was slow, was cancelled and returned nothing.
    pub(crate) fn gave_nothing(&mut self, settings: &EjectionSettings) -> Option<Reason> {
        let verdict = self.answered(true, settings);
        self.silent = true;
        verdict
    }

    /// Whether to probe it in service, because it returned nothing: the deadline of the probe.
    pub(crate) fn ask(&mut self, now: Time, settings: &EjectionSettings) -> Option<Time> {
        let asks = settings.enabled && self.silent && self.in_service() && self.question.is_none();
        let until = now + settings.backoff_max.max(LEAST_BACKOFF);
        asks.then(|| *self.question.insert(until))
    }

    /// Ends the question: it was answered, or the instance must stay.
    pub(crate) fn asked(&mut self) {
        (self.question, self.silent, self.slow) = (None, false, 0);
    }

    /// Notes a failure that is the instance's fault.
    pub(crate) fn failed(&mut self, settings: &EjectionSettings) -> Option<Reason> {
        self.good = 0;
        self.failures = self.failures.saturating_add(1);
        self.fails(settings)
    }

    /// Notes a failure that is the instance's fault or the query's.
    pub(crate) fn suspect(&mut self, settings: &EjectionSettings) -> Option<Reason> {
        self.suspected = self.suspected.saturating_add(1);
        self.note_run(true);
        self.failed(settings)
    }

    /// Notes that another instance answered a query on which it failed.
    pub(crate) fn confirm(&mut self, settings: &EjectionSettings) -> Option<Reason> {
        self.confirmed |= self.suspected > 0;
        self.fails(settings).filter(|_| self.confirmed)
    }

    /// Whether it failed too often. Suspected failures count once one of them was confirmed.
    fn fails(&self, settings: &EjectionSettings) -> Option<Reason> {
        let excused = if self.confirmed { 0 } else { self.suspected };
        (self.failures.saturating_sub(excused) >= settings.failures.get()).then_some(Reason::Failing)
    }

    /// Whether it failed since its last answer, and perhaps by no fault of its own.
    pub(crate) fn is_suspected(&self) -> bool {
        self.suspected > 0 && !self.confirmed
    }

    /// Whether it failed so often in a row that it would be ejected if the others could do without it.
    pub(crate) fn is_failing(&self, settings: &EjectionSettings) -> bool {
        self.fails(settings).is_some()
    }

    /// Takes a failure back that was the query's fault. Returns whether that readmits the instance.
    pub(crate) fn forgive(&mut self, settings: &EjectionSettings) -> bool {
        let taken_back = self.suspected.min(1);
        (self.failures, self.suspected) = (self.failures - taken_back, self.suspected - taken_back);
        let wronged = self.out_for() == Some(Reason::Failing) && self.failures < settings.failures.get();
        if wronged {
            (self.state, self.backoff) = (Standing::InService, None);
        }
        wronged
    }

    /// Ejects it. Returns the time of the probe; `jitter` in 0..1 keeps several frontends from probing in step.
    pub(crate) fn eject(
        &mut self,
        now: Time,
        reason: Reason,
        settings: &EjectionSettings,
        jitter: f64,
    ) -> Time {
        let longer = self.backoff.map_or(settings.backoff_min, |last| last * 2);
        let backoff = longer.min(settings.backoff_max).max(LEAST_BACKOFF);
        self.backoff = Some(backoff);
        self.question = self.question.filter(|_| reason == Reason::Slow);
        let probe_at = now + times(backoff, 1.0 + 0.1 * jitter);
        self.state = Standing::Ejected { probe_at, reason };
        probe_at
    }

    /// Brings its probe forward, because work waits for it. Returns the new time of the probe. One with wrong answers
    /// stays away: a probe does not show whether they are right.
    pub(crate) fn hasten(&mut self, now: Time, settings: &EjectionSettings) -> Option<Time> {
        let Standing::Ejected { probe_at, reason: Reason::Failing | Reason::Slow } = &mut self.state else {
            return None;
        };
        let soon = now + settings.backoff_min.max(LEAST_BACKOFF);
        (soon < *probe_at).then(|| {
            *probe_at = soon;
            soon
        })
    }

    /// Reacts to a probe timer.
    pub(crate) fn due(&mut self, now: Time, settings: &EjectionSettings) -> Due {
        match self.state {
            _ if self.question.is_some_and(|until| until <= now) => Due::Overdue,
            Standing::Ejected { probe_at, reason } if probe_at <= now => {
                let until = now + settings.backoff_max.max(LEAST_BACKOFF);
                let until = self.question.take().map_or(until, |asked| asked.min(until));
                self.state = Standing::Probed { until, reason };
                Due::Probe { until }
            }
            Standing::Probed { until, .. } if until <= now => Due::Overdue,
            _ => Due::Nothing,
        }
    }

    /// Whether a probe is under way.
    pub(crate) fn awaits_probe(&self) -> bool {
        self.is_probed() || self.question.is_some()
    }

    /// Whether it returned nothing and has not answered the probe yet: work sent to it may be lost.
    pub(crate) fn may_hang(&self) -> bool {
        self.silent && self.awaits_probe()
    }

    /// Whether the answer of the probe readmits it.
    pub(crate) fn is_probed(&self) -> bool {
        matches!(self.state, Standing::Probed { .. })
    }

    /// Readmits it, on trial.
    pub(crate) fn readmit(&mut self, settings: &EjectionSettings) {
        self.state = Standing::InService;
        self.good = 0;
        self.slow = settings.slow_answers.get() - 1;
        (self.failures, self.suspected, self.confirmed) = (settings.failures.get() - 1, 0, false);
        (self.silent, self.question) = (false, None);
    }

    /// Readmits it without an answer to a probe, which may be under way.
    pub(crate) fn recall(&mut self, settings: &EjectionSettings) {
        let silent = self.silent;
        let until = if let Standing::Probed { until, .. } = self.state { Some(until) } else { self.question };
        self.readmit(settings);
        (self.silent, self.question) = (silent, until);
    }
}

/// The action that a probe timer requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// None: the timer is out of date.
    Nothing,
    /// A probe, and another timer at its deadline.
    Probe { until: Time },
    /// The probe timed out.
    Overdue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_slow_answers_in_a_row_eject_and_one_does_not() {
        let settings = EjectionSettings::default();
        let mut health = Health::new();
        let verdicts = [true, false, true, true].map(|slow| health.answered(slow, &settings));
        assert_eq!(verdicts, [None, None, None, Some(Reason::Slow)]);
    }

    #[test]
    fn backoff_doubles_until_good_answers_clear_the_record() {
        let settings = EjectionSettings::default();
        let mut health = Health::new();
        let waits: Vec<u64> = (0..5)
            .map(|_| {
                let wait =
                    health.eject(Time::ZERO, Reason::Slow, &settings, 0.0).since(Time::ZERO).as_millis()
                        as u64;
                health.readmit(&settings);
                wait
            })
            .collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 2000]);
        (0..CLEARED_BY).for_each(|_| assert_eq!(health.answered(false, &settings), None));
        assert_eq!(health.eject(Time::ZERO, Reason::Slow, &settings, 0.0).since(Time::ZERO).as_millis(), 250);
    }

    #[test]
    fn forgiven_failure_readmits_the_instance() {
        let settings = EjectionSettings::default();
        let mut health = Health::new();
        assert_eq!([(); 4].map(|()| health.suspect(&settings)), [None; 4]);
        assert_eq!(health.confirm(&settings), Some(Reason::Failing));
        health.eject(Time::ZERO, Reason::Failing, &settings, 0.0);
        assert_eq!([(); 3].map(|()| health.forgive(&settings)), [false, true, false]);
        assert!(health.in_service());
    }

    #[test]
    fn own_failures_eject_without_counting_suspected_ones() {
        let settings = EjectionSettings::default();
        let mut health = Health::new();
        assert_eq!([(); 9].map(|()| health.suspect(&settings)), [None; 9]);
        let verdicts = [(); 3].map(|()| health.failed(&settings));
        assert_eq!(verdicts, [None, None, Some(Reason::Failing)]);
    }

    #[test]
    fn hung_instance_times_out_despite_ejections_and_recalls() {
        let settings = EjectionSettings::default();
        let mut health = Health::new();
        health.gave_nothing(&settings);
        let until = health.ask(Time::ZERO, &settings).unwrap();
        for round in 0..4 {
            let now = Time::ZERO + Duration::from_millis(100 * round);
            health.eject(now, Reason::Slow, &settings, 0.0);
            assert!(health.may_hang() && !health.is_probed());
            health.recall(&settings);
            assert_eq!(health.ask(now, &settings), None, "it was asked already");
        }
        assert_eq!(health.due(until, &settings), Due::Overdue);
    }

    #[test]
    fn an_instance_that_comes_back_is_on_trial() {
        let settings = EjectionSettings::default();
        let mut health = Health::new();
        health.eject(Time::ZERO, Reason::Slow, &settings, 0.0);
        health.readmit(&settings);
        assert_eq!(health.answered(true, &settings), Some(Reason::Slow));
    }
}
