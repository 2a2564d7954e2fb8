//! How an instance has been doing, and what follows: in service, or ejected and probed.
//!
//! One slow answer says little, as any instance has one now and then; two in a row say that the instance is slow. An
//! instance that comes back is on trial: one more bad answer ejects it again, for twice as long. Several good answers
//! clear its record. Whether an ejection is affordable is not known here: see `Dispatcher::eject`.
//!
//! Slowness and wrong answers are the instance's, whatever it runs. Failures are of one model on it: that one is broken
//! there says nothing of the others, so each of its models has such a record too. That a model fails may as well be due to
//! the query; so it is not held against the instance before another one has answered a query that it failed. Where the
//! others hang, or answer other queries, nothing is known, and one failure of its own does not change that. Rejected: a
//! probe of the suspect, as what was answered before may be answered again by one that breaks on all that is larger.
//!
//! Who is slow and who hangs looks the same where clients go away first: jobs end without an answer. Slow ones are kept
//! where the others are too busy, which makes no sense for one that gives nothing back. So that one is asked, by a probe,
//! while it stays in service, and goes if it does not answer. If it is ejected meanwhile, the question stands, and it is not
//! called back before it has answered: else one that hangs would be asked anew each time, and never be out of time.

use std::time::Duration;

use super::{EjectionSettings, Time};

/// Good answers that clear the record.
const CLEARED_BY: u8 = 8;

/// Probes are not sent faster, whatever the settings say.
const LEAST_BACKOFF: Duration = Duration::from_millis(1);

/// The record of one instance, or of one of its models.
#[derive(Clone, Copy, Debug)]
pub(super) struct Health {
    slow: u8,
    /// It gave nothing back when it was last found slow.
    silent: bool,
    /// It was asked in service whether it hangs: until when it may answer.
    question: Option<Time>,
    failures: u8,
    /// Those of them that may be due to the query.
    suspected: u8,
    /// One of these was not due to the query.
    confirmed: bool,
    good: u8,
    /// The wait before the probe of the last ejection; none when the record is clear.
    backoff: Option<Duration>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InService,
    /// Out of service; to be probed then.
    Ejected {
        probe_at: Time,
        reason: Reason,
    },
    /// A probe is out; it counts as failed if nothing is heard by then.
    Probed {
        until: Time,
        reason: Reason,
    },
}

/// Why an instance is ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its answers took several times as long as the others'.
    Slow,
    /// It fails jobs, or does not answer at all.
    Failing,
    /// Its answers are wrong.
    Wrong,
}

impl Health {
    pub(super) fn new() -> Self {
        Self {
            slow: 0,
            silent: false,
            question: None,
            failures: 0,
            suspected: 0,
            confirmed: false,
            good: 0,
            backoff: None,
            state: State::InService,
        }
    }

    pub(super) fn in_service(&self) -> bool {
        self.state == State::InService
    }

    /// Whether its last answer was slow.
    pub(super) fn was_slow(&self) -> bool {
        self.slow > 0
    }

    /// Whether it is out of service and works, as far as is known.
    pub(super) fn out_for_slowness(&self) -> bool {
        self.out_for() == Some(Reason::Slow)
    }

    /// Why it is out of service, if it is.
    pub(super) fn out_for(&self) -> Option<Reason> {
        match self.state {
            State::InService => None,
            State::Ejected { reason, .. } | State::Probed { reason, .. } => Some(reason),
        }
    }

    /// When it is probed next, if it is out of service; none while a probe is out.
    pub(super) fn probe_at(&self) -> Option<Time> {
        if let State::Ejected { probe_at, .. } = self.state { Some(probe_at) } else { None }
    }

    /// An answer came, slow or not.
    pub(super) fn answered(&mut self, slow: bool, settings: &EjectionSettings) -> Option<Reason> {
        (self.failures, self.suspected, self.confirmed, self.silent) = (0, 0, false, false);
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

    /// A job that took long was given up, and gave nothing back.
    pub(super) fn gave_nothing(&mut self, settings: &EjectionSettings) -> Option<Reason> {
        let verdict = self.answered(true, settings);
        self.silent = true;
        verdict
    }

    /// Whether to ask it if it hangs, as it stays in service and has given nothing back: by when it has to answer.
    pub(super) fn ask(&mut self, now: Time, settings: &EjectionSettings) -> Option<Time> {
        let asks = settings.enabled && self.silent && self.in_service() && self.question.is_none();
        let until = now + settings.backoff_max.max(LEAST_BACKOFF);
        asks.then(|| *self.question.insert(until))
    }

    /// It answered what it was asked, or its silence must be borne.
    pub(super) fn asked(&mut self) {
        (self.question, self.silent, self.slow) = (None, false, 0);
    }

    /// A job failed, by the instance's fault.
    pub(super) fn failed(&mut self, settings: &EjectionSettings) -> Option<Reason> {
        self.good = 0;
        self.failures = self.failures.saturating_add(1);
        self.fails(settings)
    }

    /// A job failed, by the instance's fault or the query's.
    pub(super) fn suspect(&mut self, settings: &EjectionSettings) -> Option<Reason> {
        self.suspected = self.suspected.saturating_add(1);
        self.failed(settings)
    }

    /// A query on which it failed was answered elsewhere.
    pub(super) fn confirm(&mut self, settings: &EjectionSettings) -> Option<Reason> {
        self.confirmed |= self.suspected > 0;
        self.fails(settings).filter(|_| self.confirmed)
    }

    /// Whether it failed too often. What may be due to queries counts once it is known that not all of it was.
    fn fails(&self, settings: &EjectionSettings) -> Option<Reason> {
        let excused = if self.confirmed { 0 } else { self.suspected };
        (self.failures.saturating_sub(excused) >= settings.failures.get()).then_some(Reason::Failing)
    }

    /// A failure was not its fault after all. Returns whether it was out of service for it, and is back.
    pub(super) fn forgive(&mut self, settings: &EjectionSettings) -> bool {
        let taken_back = self.suspected.min(1);
        (self.failures, self.suspected) = (self.failures - taken_back, self.suspected - taken_back);
        let wronged = self.out_for() == Some(Reason::Failing) && self.failures < settings.failures.get();
        if wronged {
            (self.state, self.backoff) = (State::InService, None);
        }
        wronged
    }

    /// Out of service. Returns when to probe; `jitter` in 0..1 keeps many frontends from probing in step.
    pub(super) fn eject(
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
        let probe_at = now + backoff.mul_f64(1.0 + 0.1 * jitter);
        self.state = State::Ejected { probe_at, reason };
        probe_at
    }

    /// A probe timer fired. Returns what to do about it.
    pub(super) fn due(&mut self, now: Time, settings: &EjectionSettings) -> Due {
        match self.state {
            _ if self.question.is_some_and(|until| until <= now) => Due::Overdue,
            State::Ejected { probe_at, reason } if probe_at <= now => {
                let until = now + settings.backoff_max.max(LEAST_BACKOFF);
                let until = self.question.take().map_or(until, |asked| asked.min(until));
                self.state = State::Probed { until, reason };
                Due::Probe { until }
            }
            State::Probed { until, .. } if until <= now => Due::Overdue,
            _ => Due::Nothing,
        }
    }

    /// Whether an answer to a probe is awaited.
    pub(super) fn awaits_probe(&self) -> bool {
        self.is_probed() || self.question.is_some()
    }

    /// Whether it has given nothing back and still owes the answer whether it hangs: to feed it would be in vain.
    pub(super) fn may_hang(&self) -> bool {
        self.silent && self.awaits_probe()
    }

    /// Whether that answer decides whether it comes back.
    pub(super) fn is_probed(&self) -> bool {
        matches!(self.state, State::Probed { .. })
    }

    /// Back in service, on trial.
    pub(super) fn readmit(&mut self, settings: &EjectionSettings) {
        self.state = State::InService;
        self.good = 0;
        self.slow = settings.slow_answers.get() - 1;
        (self.failures, self.suspected, self.confirmed) = (settings.failures.get() - 1, 0, false);
        (self.silent, self.question) = (false, None);
    }

    /// Back in service without an answer to a probe, which may be on its way.
    pub(super) fn recall(&mut self, settings: &EjectionSettings) {
        let silent = self.silent;
        let until = if let State::Probed { until, .. } = self.state { Some(until) } else { self.question };
        self.readmit(settings);
        (self.silent, self.question) = (silent, until);
    }
}

/// What a probe timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The timer is out of date.
    Nothing,
    /// Send a probe, and look again at that time.
    Probe { until: Time },
    /// The probe was not answered: as good as failed.
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
    fn what_was_out_for_a_failure_that_is_forgiven_is_back() {
        let settings = EjectionSettings::default();
        let mut health = Health::new();
        assert_eq!([(); 4].map(|()| health.suspect(&settings)), [None; 4]);
        assert_eq!(health.confirm(&settings), Some(Reason::Failing));
        health.eject(Time::ZERO, Reason::Failing, &settings, 0.0);
        assert_eq!([(); 3].map(|()| health.forgive(&settings)), [false, true, false]);
        assert!(health.in_service());
    }

    #[test]
    fn failures_of_its_own_eject_it_and_suspicions_do_not_add_to_them() {
        let settings = EjectionSettings::default();
        let mut health = Health::new();
        assert_eq!([(); 9].map(|()| health.suspect(&settings)), [None; 9]);
        let verdicts = [(); 3].map(|()| health.failed(&settings));
        assert_eq!(verdicts, [None, None, Some(Reason::Failing)]);
    }

    #[test]
    fn what_hangs_is_out_of_time_however_often_it_is_ejected_and_called_back() {
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
