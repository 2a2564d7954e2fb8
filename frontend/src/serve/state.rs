//! What an event does to dispatcher and ledger, under one lock; what is left to do outside of it comes out as effects.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::coding;
use super::driver::Driver;
use super::effect::{Effect, Effects, Garbage};
use super::job::{Ending, Launch};
use super::ledger::{CallId, Failed, Ledger, Running, Stop};
use super::outcome::Outcome;
use super::outputs::RowAnswer;
use crate::dispatch::{
    Action, Actions, Answer, Dispatcher, Event, Failure, Job, JobId, QueryId, Reject, Rows,
};

/// The dispatcher and the ledger, behind the driver's lock.
pub(super) struct State {
    pub(super) dispatcher: Dispatcher,
    pub(super) ledger: Ledger,
    /// Reused from event to event.
    actions: Actions,
    /// Events that follow from actions, handled under the same lock.
    follow_up: Vec<Event>,
    /// The event at hand is a client going away.
    pub(super) cancelling: bool,
}

impl State {
    pub(super) fn new(dispatcher: Dispatcher) -> Self {
        Self {
            dispatcher,
            ledger: Ledger::default(),
            actions: Actions::new(),
            follow_up: Vec::new(),
            cancelling: false,
        }
    }

    /// Lets the dispatcher react to an event, and to what follows from its actions.
    pub(super) fn react(&mut self, driver: &Driver, event: Event, effects: &mut Effects) {
        let mut next = Some(event);
        while let Some(event) = next {
            let mut actions = std::mem::take(&mut self.actions);
            self.dispatcher.on_event(driver.clock.now(), event, &mut actions);
            for action in actions.drain(..) {
                self.note(driver, action, effects);
            }
            self.actions = actions;
            next = self.follow_up.pop();
        }
    }

    fn note(&mut self, driver: &Driver, action: Action, effects: &mut Effects) {
        match action {
            Action::Run(job, rows) => self.run(driver, job, rows, effects),
            Action::Drop(job) => {
                let stop = if self.cancelling { Stop::Cancelled } else { Stop::Unwanted };
                if let Some(signal) = self.ledger.jobs.get_mut(&job).and_then(|running| running.stop.take()) {
                    // The task may have ended just now.
                    let _ = signal.send(stop);
                }
            }
            Action::Answer(query, answer) => self.answer(query, answer, effects),
            Action::Release(job) => {
                if let Some(running) = self.ledger.jobs.remove(&job) {
                    running.instance.job_ended();
                    effects.push(Effect::Discard(Garbage::Job(running)));
                }
            }
            Action::Probe(instance) => match self.ledger.instances.get(&instance) {
                Some(instance) => effects.push(Effect::Probe(instance.clone())),
                None => self.follow_up.push(Event::ProbeAnswered(instance, false)),
            },
            Action::WakeAt(at) => effects.push(Effect::Wake(at)),
            Action::Suspect(instance, _) => {
                tracing::warn!(instance = instance.0, "answers disagree with parities")
            }
            Action::Compare(comparison) => self.follow_up.push(Event::Compared(comparison.group, Vec::new())),
            coded @ (Action::Encode(..) | Action::Decode(..) | Action::Forget(_)) => {
                coding::note(coded, &mut self.follow_up);
            }
        }
    }

    fn run(&mut self, driver: &Driver, job: Job, rows: Rows, effects: &mut Effects) {
        let now = driver.clock.now();
        let mut launch = None;
        let mut inputs = SmallVec::new();
        let mut latest = now;
        for id in &rows {
            let Some(query) = self.ledger.query(*id) else { continue };
            let waited = (!query.sent).then(|| now.since(query.arrived));
            query.sent = true;
            latest = latest.max(query.deadline);
            inputs.push(query.row.clone());
            let call = query.call;
            if let Some(call) = self.ledger.call(call) {
                if let Some(waited) = waited {
                    call.pool.dequeued(waited);
                }
                launch.get_or_insert_with(|| call.pool.clone());
            }
        }
        let instance = self.ledger.instances.get(&job.instance).cloned();
        // Neither can be missing while the dispatcher keeps its word; then the job goes elsewhere or nowhere.
        let (Some(pool), Some(instance), true) = (launch, instance, inputs.len() == rows.len()) else {
            self.follow_up.push(Event::JobFailed(job.id, Failure::Instance));
            return;
        };
        let (stop, stopped) = oneshot::channel();
        instance.job_started();
        let running = Running {
            instance: instance.clone(),
            pool: pool.clone(),
            rows,
            started: now,
            role: job.role,
            stop: Some(stop),
            outputs: None,
        };
        self.ledger.jobs.insert(job.id, running);
        let deadline = driver.clock.instant(latest + driver.limits.overrun).into_std();
        effects.push(Effect::Launch(Launch {
            job: job.id,
            role: job.role,
            instance,
            pool,
            rows: inputs,
            deadline,
            stopped,
        }));
    }

    fn answer(&mut self, id: QueryId, answer: Answer, effects: &mut Effects) {
        let Some(waiting) = self.ledger.forget(id) else { return };
        let row = match answer {
            Answer::Exact { job, row } | Answer::Hedged { job, row } | Answer::Backup { job, row } => {
                self.ledger.jobs.get(&job).and_then(|running| running.outputs.clone()).zip(Some(row as usize))
            }
            Answer::Reconstructed { group, .. } => coding::reconstruction(group, id),
            // Until a model brings a default answer with it there is none to give.
            Answer::Default | Answer::Rejected(_) => None,
        };
        let (Some((outputs, row)), Some(outcome)) = (row, Outcome::of(&answer)) else {
            let why = match answer {
                Answer::Rejected(why) => why,
                _ => Reject::Deadline,
            };
            return self.fail(waiting.call, Failed { why, last: waiting.failure }, effects);
        };
        let (confidence, group) = match answer {
            Answer::Reconstructed { group, confidence } => (confidence, Some(group.0)),
            _ => (None, None),
        };
        let answer = RowAnswer { outcome, outputs, row, confidence, group };
        if let Some((told, answers)) = self.ledger.answer(&waiting, answer) {
            effects.push(Effect::Tell(told, Ok(answers)));
        }
        effects.push(Effect::Discard(Garbage::Query(waiting)));
    }

    /// One row's failure is its request's: nobody waits for the other rows any more.
    fn fail(&mut self, call: CallId, failed: Failed, effects: &mut Effects) {
        let Some((call, open)) = self.ledger.close(call) else { return };
        self.follow_up.extend(open.into_iter().map(Event::QueryCancelled));
        effects.push(Effect::Tell(call.told, Err(failed)));
    }

    /// A job ended: its outputs are kept for those that they answer.
    pub(super) fn finish(&mut self, driver: &Driver, job: JobId, ending: Ending, effects: &mut Effects) {
        let Some(running) = self.ledger.jobs.get_mut(&job) else { return };
        let now = driver.clock.now();
        let took = now.since(running.started);
        driver.recorder.note(|| running.note(now, matches!(ending, Ending::Completed(_))));
        let event = match ending {
            Ending::Completed(outputs) => {
                running.instance.served(took);
                running.pool.executed(outputs.rows, took);
                running.outputs = Some(Arc::new(outputs));
                Event::JobCompleted(job)
            }
            Ending::Failed(failure, error) => {
                let rows = running.rows.clone();
                for query in rows {
                    if let Some(waiting) = self.ledger.query(query) {
                        waiting.failure = Some(error.clone());
                    }
                }
                Event::JobFailed(job, failure)
            }
            Ending::GivenUp => Event::JobFailed(job, Failure::Instance),
        };
        self.react(driver, event, effects);
    }
}
