//! Applies an event to dispatcher and ledger under one lock; the remaining work is returned as effects.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use parm_dispatch::replay::Tape;
use parm_dispatch::{
    Action, Actions, Answer, Dispatcher, Event, Failure, InstanceId, JobId, JobSpec, Payer, QueryId, Reject,
    Role, Rows, Time, Wanted,
};
use parm_protocol::fleet::{OWN_SHARE, Wish};
use parm_tokens::Order;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::crash;
use super::driver::Driver;
use super::effect::{Effect, Effects, Garbage};
use super::job::{Ending, Launch, Task};
use super::ledger::{CallId, Failed, Ledger, Running, Settled, Stop};
use super::outcome::Outcome;
use super::outputs::{Outputs, RowAnswer};
use super::pool::Pool;
use crate::console::{Archive, At};

/// The dispatcher and the ledger, behind the driver's lock.
pub(super) struct State {
    pub(super) dispatcher: Dispatcher,
    pub(super) ledger: Ledger,
    pub(super) archive: Archive,
    /// Reused from event to event.
    actions: Actions,
    /// Events that follow from actions, handled under the same lock in order.
    pub(super) follow_up: VecDeque<Event>,
    /// Requests that fail by the present event. They are closed after its actions, because a job that it starts may
    /// hold rows of theirs, and the dispatcher cancels those only then.
    failing: Vec<(CallId, Failed)>,
    /// Number of alarm settings so far.
    turn: u64,
    /// Whether the present event is a client going away.
    pub(super) cancelling: bool,
    /// Latest events, for the report of a panic.
    tape: Tape,
    reported: bool,
    /// Makes the next query panic.
    #[cfg(test)]
    pub(super) planted: bool,
}

impl State {
    pub(super) fn new(dispatcher: Dispatcher, tape: Tape) -> Self {
        Self {
            dispatcher,
            ledger: Ledger::default(),
            archive: Archive::default(),
            actions: Actions::new(),
            follow_up: VecDeque::new(),
            failing: Vec::new(),
            turn: 0,
            cancelling: false,
            tape,
            reported: false,
            #[cfg(test)]
            planted: false,
        }
    }

    /// Lets the dispatcher react to an event and to its follow-ups.
    pub(super) fn react(&mut self, driver: &Driver, event: Event, effects: &mut Effects) {
        // The state of the dispatcher after a panic is unknown.
        let _line = driver.lifelines.hold("the dispatcher");
        let reacted = catch_unwind(AssertUnwindSafe(|| self.react_to_all(driver, event, effects)));
        if let Err(panic) = reacted {
            if !std::mem::replace(&mut self.reported, true) {
                driver.lifelines.explain(crash::report(driver.crash_folder.as_deref(), &self.tape, &panic));
            }
            resume_unwind(panic);
        }
    }

    fn react_to_all(&mut self, driver: &Driver, event: Event, effects: &mut Effects) {
        let mut next = Some(event);
        while let Some(event) = next {
            let gone = if let Event::QueryCancelled(query) = event { Some(query) } else { None };
            let mut actions = std::mem::take(&mut self.actions);
            let now = driver.clock.now();
            self.tape.note(now, &event);
            #[cfg(test)]
            assert!(!(self.planted && matches!(event, Event::QueryArrived(_))), "planted");
            self.dispatcher.on_event(now, event, &mut actions);
            self.tape.did(&actions);
            for action in actions.drain(..) {
                self.note(driver, action, effects);
            }
            self.actions = actions;
            // Only after the dispatcher has released the query: until then it may have started it.
            if let Some(inputs) = gone.and_then(|query| self.ledger.cancel(query)?.gone) {
                effects.push(Effect::Discard(Garbage::Inputs(inputs)));
            }
            self.close_failing(effects);
            next = self.follow_up.pop_front();
        }
    }

    /// The failure of a row fails its request, so its other rows are cancelled.
    fn close_failing(&mut self, effects: &mut Effects) {
        for (call, failed) in self.failing.drain(..) {
            // If several of its rows failed at once, the first one's reason is reported.
            let Some((call, open)) = self.ledger.close(call) else { continue };
            self.follow_up.extend(open.into_iter().map(Event::QueryCancelled));
            effects.push(Effect::Tell(call.told, Err(failed)));
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
            Action::Answer(query, answer) => {
                self.archive(driver, query, &answer);
                self.answer(query, answer, effects);
            }
            Action::Release(job) => {
                if let Some((running, inputs)) = self.ledger.release(job) {
                    running.instance.job_ended();
                    effects.push(Effect::Discard(Garbage::Job(running, inputs)));
                }
            }
            Action::Probe(instance, pool) => match self.ledger.instances.get(&instance) {
                Some(instance) => effects.push(Effect::Probe(instance.clone(), pool)),
                None => self.follow_up.push_back(Event::ProbeAnswered(instance, pool, false)),
            },
            Action::WakeAt(at) => {
                self.turn += 1;
                effects.push(Effect::Wake(at, self.turn));
            }
            Action::Tell(instance, order) => self.wish(driver, instance, order, effects),
            Action::Suspect(instance, pool) => self.suspect(driver, instance, pool),
            Action::Ejected(instance, pool, why) => self.ejected(driver, instance, pool, why),
            Action::Kept(instance, pool, why) => self.kept(driver, instance, pool, why),
            Action::Readmitted(instance) => self.readmitted(driver, instance),
            Action::Trace(query, step) => self.stepped(driver.clock.now(), query, step),
            Action::Compare(comparison) => self.compare(&comparison, effects),
            Action::Judge(query, output) => self.judge(query, output, effects),
            Action::Check(pair) => self.check_pair(pair, effects),
            Action::Encode(group, slots) => self.encode(group, &slots, effects),
            Action::Decode(recovery) => self.decode(&recovery, effects),
            Action::Forget(group) => {
                if let Some(group) = self.ledger.groups.remove(&group) {
                    effects.push(Effect::Discard(Garbage::Group(Box::new(group))));
                }
            }
        }
    }

    fn run(&mut self, driver: &Driver, job: JobSpec, rows: Rows, effects: &mut Effects) {
        let now = driver.clock.now();
        let task = match job.role {
            Role::Parity(group, index) => self.parity(group, index),
            role => self.batch(role, &rows, now),
        };
        let instance = self.ledger.instances.get(&job.instance).cloned();
        // Both exist unless a backup model was removed from the settings. Such an internal gap is not an instance's
        // failure.
        let (Some((pool, task, latest)), Some(instance)) = (task, instance.as_ref()) else {
            let unused = instance.zip(job.token);
            effects.extend(unused.map(|(instance, token)| Effect::Wish(instance, Order::GiveBack(token))));
            self.follow_up.push_back(Event::JobFailed(job.id, Failure::Query));
            return;
        };
        let (stop, stopped) = oneshot::channel();
        instance.job_started();
        let at = At { instance: instance.number, job: job.id.0 };
        self.job_given(now, job.role, at, &rows);
        let arrived = rows.first().and_then(|query| Some(self.ledger.query(*query)?.arrived));
        let stands_in = matches!(job.role, Role::StandIn(_));
        let running = Running {
            instance: instance.clone(),
            pool: pool.clone(),
            role: job.role,
            stand_in: if stands_in { pool.codes().stand_in.clone() } else { None },
            rows,
            arrived,
            started: now,
            stop: Some(stop),
            outputs: None,
        };
        self.ledger.hold(job.id, running);
        let deadline = driver.clock.instant(latest.max(now) + driver.limits.overrun);
        effects.push(Effect::Launch(Launch {
            job: job.id,
            role: job.role,
            class: job.class,
            token: job.token,
            share: share(driver, &pool, &job),
            instance: instance.clone(),
            pool,
            task,
            lengths: None,
            deadline,
            stopped,
        }));
    }

    /// Sends an order about an instance's tokens in the protocol of its server.
    fn wish(&self, driver: &Driver, instance: InstanceId, order: Order<Wanted>, effects: &mut Effects) {
        let Some(instance) = self.ledger.instances.get(&instance) else { return };
        let wish = |wanted: Wanted| {
            let model = self.ledger.pools.get(&wanted.pool)?.model.name.clone();
            let share = match wanted.payer {
                Payer::Share(share) => Some(driver.shares.name(share.0).to_string()),
                Payer::Model(_) => None,
            };
            Some(Wish { model, share })
        };
        let order = match order {
            Order::GiveBack(token) => Some(Order::GiveBack(token)),
            Order::Reserve(wanted, class, note, waited) => {
                wish(wanted).map(|wish| Order::Reserve(wish, class, note, waited))
            }
            Order::Withdraw(wanted) => wish(wanted).map(Order::Withdraw),
        };
        effects.extend(order.map(|order| Effect::Wish(instance.clone(), order)));
    }

    /// The task of a job on queries, and the latest of their deadlines.
    fn batch(&mut self, role: Role, rows: &Rows, now: Time) -> Option<(Arc<Pool>, Task, Time)> {
        let (mut pool, mut inputs, mut latest) = (None, SmallVec::new(), now);
        for id in rows {
            let query = self.ledger.query(*id)?;
            // A query of which only the stand-in runs still waits for an instance.
            let stands_in = matches!(role, Role::StandIn(_));
            let waited = (!query.sent && !stands_in).then(|| now.since(query.arrived));
            query.sent |= !stands_in;
            latest = latest.max(query.deadline);
            inputs.push(query.row.clone());
            let (call, of) = (query.call, query.pool);
            // Its request may have failed just now, by another row.
            let known =
                self.ledger.call(call).map(|call| &call.pool).or_else(|| self.ledger.pools.get(&of))?;
            if let Some(waited) = waited {
                known.dequeued(waited);
            }
            pool.get_or_insert_with(|| known.clone());
        }
        let pool = pool?;
        let task = match role {
            Role::Backup => Task::Backup(pool.codes().backup.clone()?, inputs),
            Role::StandIn(urgency) => {
                Task::StandIn(pool.codes().stand_in.as_ref()?.model.clone(), urgency, inputs)
            }
            _ => Task::Deployed(inputs),
        };
        Some((pool, task, latest))
    }

    fn answer(&mut self, id: QueryId, answer: Answer, effects: &mut Effects) {
        let Some(mut settled) = self.ledger.settle(id) else { return };
        if settled.never_comes && !refused(&answer) {
            self.ledger.call(settled.call).iter().for_each(|call| call.pool.sums.never_alone());
        }
        if let Some(inputs) = settled.gone.take() {
            effects.push(Effect::Discard(Garbage::Inputs(inputs)));
        }
        let row = self.outputs(id, &answer, &settled);
        let (Some((outputs, row)), Some(outcome)) = (row, Outcome::of(&answer)) else {
            let why = match answer {
                Answer::Rejected(why) => why,
                _ => Reject::Deadline,
            };
            self.failing
                .push((settled.call, Failed { why, last: settled.failure, attempts: settled.attempts }));
            return;
        };
        let (confidence, group) = match answer {
            Answer::Reconstructed { group, confidence } => (confidence, Some(group.0)),
            Answer::StandIn { confidence, .. } => (confidence, None),
            _ => (None, None),
        };
        let answer = RowAnswer { outcome, outputs, row, confidence, group };
        if let Some((told, answers)) = self.ledger.answer(&settled, answer) {
            effects.push(Effect::Tell(told, Ok(answers)));
        }
    }

    /// The outputs of an answer.
    fn outputs(&self, id: QueryId, answer: &Answer, settled: &Settled) -> Option<(Arc<Outputs>, usize)> {
        match *answer {
            Answer::Exact { job, row }
            | Answer::Hedged { job, row }
            | Answer::Backup { job, row }
            | Answer::StandIn { job, row, .. } => {
                Some((self.ledger.jobs.get(&job)?.outputs.clone()?, row as usize))
            }
            Answer::Reconstructed { group, .. } => {
                Some((self.ledger.groups.get(&group)?.reconstruction(id)?, 0))
            }
            Answer::Default => {
                let codes = self.ledger.call(settled.call)?.pool.codes();
                Some((codes.default_answer.as_ref()?.outputs(), 0))
            }
            Answer::Rejected(_) => None,
        }
    }

    /// Handles the end of a job; its outputs are kept while queries need them.
    pub(super) fn finish(&mut self, driver: &Driver, job: JobId, ending: Ending, effects: &mut Effects) {
        let Some(running) = self.ledger.jobs.get_mut(&job) else { return };
        let now = driver.clock.now();
        let (role, rows, at) = (running.role, running.rows.clone(), running.at(job));
        let took = now.since(running.started);
        let ok = matches!(ending, Ending::Completed(_));
        driver.recorder.note(|| running.note(now, ok));
        running.instance.ends(ok);
        running.pool.sums.worked(role, took);
        let event = match ending {
            Ending::Completed(outputs) => {
                let predicts = matches!(role, Role::Deployed | Role::Copy);
                running.instance.served(took);
                if predicts {
                    running.pool.executed(outputs.rows, took);
                }
                if predicts && let Some([usual, _]) = self.dispatcher.service(running.pool.id) {
                    running.instance.paced(took.as_secs_f64() / usual.as_secs_f64());
                }
                running.outputs = Some(Arc::new(outputs));
                if role == Role::Deployed {
                    self.predicted(now, &rows);
                }
                self.job_in(now, role, at, &rows);
                Event::JobCompleted(job)
            }
            Ending::Failed(failure, error) => {
                self.job_failed(now, at, &rows, &error);
                // A stand-in's failure does not explain a missing prediction.
                let stands_in = matches!(role, Role::StandIn(_));
                for query in if stands_in { Rows::new() } else { rows } {
                    if let Some(waiting) = self.ledger.query(query) {
                        // Its earlier failure is the reason why a job was withheld.
                        let earlier = waiting.failure.take().filter(|_| failure == Failure::Withheld);
                        waiting.failure = earlier.or_else(|| Some(error.clone()));
                        waiting.attempts = waiting.attempts.saturating_add(1);
                    }
                }
                Event::JobFailed(job, failure)
            }
            Ending::GivenUp => Event::JobFailed(job, Failure::Instance),
        };
        self.react(driver, event, effects);
    }

    /// Records that queries' own predictions arrived, which shows the time that redundancy saved.
    fn predicted(&mut self, now: Time, rows: &Rows) {
        for query in rows {
            let Some(waiting) = self.ledger.known(*query).filter(|waiting| !waiting.came) else { continue };
            waiting.came = true;
            let (of, alone) = (waiting.pool, now.since(waiting.arrived));
            self.ledger.pools.get(&of).iter().for_each(|pool| pool.sums.alone(alone));
            self.came(*query, alone);
        }
    }
}

/// The share that a worker should charge a job to. Redundant models are charged to the share of their queries.
fn share(driver: &Driver, pool: &Pool, job: &JobSpec) -> Option<Arc<str>> {
    match job.payer {
        Payer::Share(share) => Some(driver.shares.name(share.0).clone()),
        Payer::Model(_) if matches!(job.role, Role::Deployed | Role::Copy) => None,
        Payer::Model(_) => Some(format!("{OWN_SHARE}{}", pool.model.name).into()),
    }
}

/// Whether a query was rejected, so that it would not have had a prediction either.
fn refused(answer: &Answer) -> bool {
    use Reject::{BadQuery, NoInstance, Overload, QueueFull};
    matches!(answer, Answer::Rejected(QueueFull | Overload | NoInstance | BadQuery))
}
