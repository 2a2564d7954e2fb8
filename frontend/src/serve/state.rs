//! The dispatcher with what its actions need, behind one lock. The work that needs no lock is left as effects.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parm_dispatcher::{
    Accept, Action, Answer, By, CancelReason, Dispatcher, End, Failure, InstanceKey, JobKey, ModelKey,
    QueryKey, Reject, Row, ShareKey, Submission, Time, Why,
};
use parm_grants::Order;
use parm_protocol::Error;
use parm_protocol::fleet::OWN_SHARE;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::attempt::{self, Attempt, Ending, Job, Payload, Role, Stop, Unneeded};
use super::call::{Call, Failed, Output, QueryRow, Verdict};
use super::coded::Coded;
use super::coding::Work;
use super::driver::Driver;
use super::instance::{Instance, InstanceId};
use super::lines::Lines;
use super::outputs::Outcome;
use super::pool::{Pool, PoolId};
use crate::console::{Archive, Story};
use crate::record::{Done, Note};

/// Effects of one event; usually few.
pub(super) type Effects = SmallVec<[Effect; 4]>;

/// What is done after the lock is released.
pub(super) enum Effect {
    /// Start an attempt.
    Launch(Attempt),
    /// Wake a request's handler.
    Tell(oneshot::Sender<Verdict>, Verdict),
    /// Ask an instance whether it works.
    Probe(InstanceKey, Arc<Instance>),
    /// Tell an instance what this frontend would start there, or that it does not use a grant; later orders have higher numbers.
    Order(Arc<Instance>, u64, Order),
    /// Encode a group or decode a prediction.
    Code(Box<Work>),
    /// Set the alarm, in this turn.
    Wake(Time, u64),
    /// Free memory that may be large.
    Discard(#[allow(dead_code, reason = "held for the sake of its drop")] Payload),
}

/// The dispatcher and its surroundings.
pub(super) struct State {
    pub(super) dispatcher: Dispatcher<Payload, Output>,
    pub(super) pools: BTreeMap<PoolId, Lines>,
    /// The pool of each model of the dispatcher.
    pub(super) models: HashMap<ModelKey, PoolId>,
    pub(super) coded: BTreeMap<PoolId, Coded>,
    pub(super) instances: HashMap<InstanceKey, Arc<Instance>>,
    pub(super) keys: HashMap<InstanceId, InstanceKey>,
    /// Runs that have not ended.
    pub(super) running: HashMap<JobKey, Arc<Job>>,
    pub(super) archive: Archive,
    /// Requests without a verdict.
    pub(super) calls: usize,
    /// Requests that fail by the present event.
    failing: Vec<(Arc<Call>, Failed)>,
    /// Reused from event to event.
    actions: Vec<Action<Payload, Output>>,
    /// The time that the alarm is set to, and how often it was set.
    pub(super) wakes_at: Option<Time>,
    turn: u64,
    /// Orders to instances so far.
    orders: u64,
    /// What is to do after the lock is released.
    pub(super) effects: Effects,
}

/// Priority of a query that has none.
const DEFAULT_PRIORITY: u8 = 128;

impl State {
    pub(super) fn new() -> Self {
        Self {
            dispatcher: Dispatcher::default(),
            pools: BTreeMap::new(),
            models: HashMap::new(),
            coded: BTreeMap::new(),
            instances: HashMap::new(),
            keys: HashMap::new(),
            running: HashMap::new(),
            archive: Archive::default(),
            calls: 0,
            failing: Vec::new(),
            actions: Vec::new(),
            wakes_at: None,
            turn: 0,
            orders: 0,
            effects: Effects::new(),
        }
    }

    /// Tells the dispatcher something, and does what follows.
    pub(super) fn react<T>(&mut self, driver: &Driver, tell: impl FnOnce(&mut Self, Time) -> T) -> T {
        // The state of the dispatcher after a panic is unknown.
        let _line = driver.lifelines.hold("the dispatcher");
        let now = driver.clock.now();
        let said = tell(self, now);
        self.follow(driver, now);
        said
    }

    /// Does what the dispatcher asks for, until it asks for nothing more.
    fn follow(&mut self, driver: &Driver, now: Time) {
        loop {
            let mut actions = std::mem::take(&mut self.actions);
            actions.extend(self.dispatcher.actions());
            let mut is_done = actions.is_empty();
            for action in actions.drain(..) {
                self.carry_out(driver, now, action);
            }
            self.actions = actions;
            is_done &= self.failing.is_empty();
            self.close_failing(now);
            if !self.code(now) && is_done {
                break;
            }
        }
        let coders = self.coded.values().filter_map(|coded| coded.coder.next_tick());
        let next = self.dispatcher.next_tick().into_iter().chain(coders).min();
        if let Some(next) = next.filter(|next| self.wakes_at.is_none_or(|set| *next < set)) {
            self.wakes_at = Some(next);
            self.turn += 1;
            self.effects.push(Effect::Wake(next, self.turn));
        }
    }

    fn carry_out(&mut self, driver: &Driver, now: Time, action: Action<Payload, Output>) {
        match action {
            Action::Run { job, instance, model, why, rows } => {
                let launched = self.run(driver, now, (job, instance), (model, why), rows);
                self.effects.extend(launched.map(Effect::Launch));
            }
            Action::Cancel { job, reason, .. } => {
                let why = match reason {
                    CancelReason::Outrun => Unneeded::Unwanted,
                    CancelReason::Gone => Unneeded::Cancelled,
                };
                if let Some(job) = self.running.get(&job) {
                    job.stop.tell(why);
                }
            }
            Action::Reply { query, payload, result } => {
                self.reply(now, query, &payload, result);
                self.effects.push(Effect::Discard(payload));
            }
            Action::Probe { instance } => {
                let known = self.instances.get(&instance).cloned();
                self.effects.extend(known.map(|known| Effect::Probe(instance, known)));
            }
            Action::Tell { instance, condition } => self.tell_condition(driver, instance, condition),
            Action::Ask { instance, ask } => self.order(instance, Order::Ask(ask)),
            Action::Return { instance } => self.order(instance, Order::Return),
        }
    }

    fn order(&mut self, instance: InstanceKey, order: Order) {
        self.orders += 1;
        let known = self.instances.get(&instance).cloned();
        self.effects.extend(known.map(|known| Effect::Order(known, self.orders, order)));
    }

    fn run(
        &mut self,
        driver: &Driver,
        now: Time,
        (key, at): (JobKey, InstanceKey),
        (model, why): (ModelKey, Why),
        rows: SmallVec<[Row<Payload>; 1]>,
    ) -> Option<Attempt> {
        let lines = &self.pools[self.models.get(&model)?];
        let pool = lines.pool.clone();
        let codes = pool.codes();
        let is_own = model == lines.own;
        let (role, runs) = match &rows.first()?.payload {
            Payload::Parity(parity) => (Role::Parity, parity.model.clone()),
            _ if is_own && matches!(why, Why::First | Why::Retry) => (Role::Deployed, pool.model.clone()),
            _ if is_own => (Role::Copy, pool.model.clone()),
            _ => {
                let role = if codes.backup.is_some() { Role::Backup } else { Role::StandIn };
                (role, lines.helper.as_ref()?.0.clone())
            }
        };
        let instance = self.instances.get(&at)?.clone();
        instance.job_started();
        let (stand_in, started, stop) = (codes.stand_in.clone(), now, Stop::default());
        let job =
            Arc::new(Job { key, role, why, at, instance, pool, model: runs, stand_in, rows, started, stop });
        self.job_given(now, &job);
        let mut latest = now;
        for Row { payload, query } in &job.rows {
            latest = latest.max(payload.deadline());
            if let (Payload::Parity(of), true) = (payload, why == Why::First)
                && let Some(coded) = self.coded.get_mut(&of.pool.id)
            {
                coded.coder.sent(*query);
            }
            let Payload::Row(row) = payload else { continue };
            if why == Why::Explore {
                continue;
            }
            let is_new = row.with(|record| {
                record.runs += 1;
                // A query of which only the stand-in runs still waits for an instance.
                let is_new = is_own && !record.sent;
                record.sent |= is_own;
                is_new
            });
            if is_new {
                job.pool.dequeued(now.since(row.call.arrived));
            }
            if is_own && why == Why::First {
                self.group(now, (*query, at), row);
            }
        }
        let share = share(driver, &job);
        self.running.insert(key, job.clone());
        let deadline = driver.clock.instant(latest + driver.limits.overrun);
        Some(Attempt { job, share, deadline })
    }

    fn reply(
        &mut self,
        now: Time,
        query: QueryKey,
        payload: &Payload,
        result: Result<Answer<Output>, Reject>,
    ) {
        let of = match payload {
            Payload::Row(row) => row.call.pool.id,
            Payload::Check(_) => return,
            Payload::Parity(parity) => parity.pool.id,
        };
        if let Some(coded) = self.coded.get_mut(&of) {
            coded.coder.replied(now, query, &result);
        }
        let Payload::Row(row) = payload else { return };
        let answer = match result {
            Ok(Answer { output, by }) => Ok((outcome(&row.call.pool, by), output)),
            Err(why @ (Reject::Deadline | Reject::Overload)) => default_answer(row).ok_or(why),
            Err(why) => Err(why),
        };
        self.archive(now, query, row, &answer);
        let is_refused = matches!(
            answer,
            Err(Reject::QueueFull | Reject::Overload | Reject::NoInstance | Reject::BadQuery)
        );
        let (last, attempts, is_alone) = row.with(|record| {
            record.replied = true;
            (record.failure.take(), record.attempts, record.runs == 0 && !record.came && !is_refused)
        });
        if is_alone {
            row.call.pool.sums.never_alone();
        }
        match answer {
            Ok((outcome, output)) => {
                if outcome == Outcome::StandIn {
                    self.check(now, row);
                }
                if let Some((told, answers)) = row.call.answer(row.index, (outcome, output)) {
                    self.calls -= 1;
                    self.effects.push(Effect::Tell(told, Ok(answers)));
                }
            }
            Err(why) => self.failing.push((row.call.clone(), Failed { why, last, attempts })),
        }
    }

    /// The failure of a row fails its request, so its other rows are cancelled. If several of its rows failed at once, the
    /// first one's reason is reported.
    fn close_failing(&mut self, now: Time) {
        for (call, failed) in std::mem::take(&mut self.failing) {
            let Some(told) = call.close() else { continue };
            self.effects.push(Effect::Tell(told, Err(failed)));
            self.cancel(now, &call);
        }
    }

    /// Cancels the queries of a request that has its verdict or whose client is gone.
    pub(super) fn cancel(&mut self, now: Time, call: &Arc<Call>) {
        self.calls -= 1;
        for query in call.open_queries() {
            let payload = self.dispatcher.cancel(now, query);
            if let Some(coded) = self.coded.get_mut(&call.pool.id) {
                coded.coder.cancelled(now, query);
            }
            if let Some(row) = payload.as_ref().and_then(Payload::row) {
                // The time of its prediction no longer matters.
                row.with(|record| {
                    (record.replied, record.came) = (true, true);
                    record.story = Story::default();
                });
            }
            self.effects.extend(payload.map(Effect::Discard));
        }
    }

    /// Handles the end of an attempt.
    pub(super) fn finish(&mut self, driver: &Driver, key: JobKey, ending: Ending) {
        let Some(job) = self.running.remove(&key) else { return };
        let now = driver.clock.now();
        let took = now.since(job.started);
        let ok = matches!(ending, Ending::Completed(_));
        driver.recorder.note(|| job.note(now, ok));
        job.instance.ends(ok);
        job.pool.sums.worked(job.role, took);
        let end = match ending {
            Ending::Completed(outputs) => {
                job.instance.served(took);
                if job.predicts() {
                    job.pool.executed(outputs.len(), took);
                }
                if let (Role::StandIn, Some(known)) = (job.role, self.stand_in_of(job.pool.id)) {
                    known.answered(&outputs);
                }
                self.job_in(now, &job, &outputs);
                End::Answered(outputs)
            }
            Ending::Failed(failure, error) => {
                self.job_failed(now, &job, failure, &error);
                End::Failed(failure)
            }
            Ending::GivenUp if job.stop.is_told() => End::Cancelled,
            Ending::GivenUp => End::Failed(Failure::Instance),
        };
        self.run_ended(now, &job, ok);
        self.react(driver, |state, now| {
            state.dispatcher.ended(now, key, end);
        });
        if matches!(job.role, Role::StandIn | Role::Backup) {
            self.held_back(now, &job);
        }
        job.instance.job_ended();
    }

    /// Takes note of predictions that arrived, and of those that never will.
    fn run_ended(&mut self, now: Time, job: &Job, answered: bool) {
        for Row { query, payload } in &job.rows {
            let Payload::Row(row) = payload else { continue };
            if job.why == Why::Explore {
                continue;
            }
            let (came, is_alone) = row.with(|record| {
                record.runs -= 1;
                let came = answered && job.role == Role::Deployed && !record.came;
                record.came |= came;
                (came, record.replied && record.runs == 0 && !record.came)
            });
            if came {
                let alone = now.since(row.call.arrived);
                job.pool.sums.alone(alone);
                self.came(*query, alone);
            } else if is_alone {
                job.pool.sums.never_alone();
                // Once: another run may be an exploring one.
                row.with(|record| record.came = true);
            }
        }
    }

    /// Submits the rows of a request.
    pub(super) fn submit(&mut self, driver: &Driver, call: &Arc<Call>) {
        let Some(own) = self.pools.get(&call.pool.id).map(|lines| lines.own) else { return };
        let priority = match call.terms.priority {
            0 => DEFAULT_PRIORITY,
            urgent => urgent,
        };
        for index in 0..call.inputs.rows {
            let row = QueryRow { call: call.clone(), index };
            let submission = Submission {
                model: own,
                payload: Payload::Row(row.clone()),
                deadline: call.deadline(),
                accept: call.terms.accept,
                shape: call.shape,
                share: call.terms.share,
                priority,
                background: false,
                apart_from: Vec::new(),
            };
            self.react(driver, |state, now| {
                let query = state.dispatcher.submit(now, submission);
                row.with(|record| record.query = Some(query));
                state.try_withheld(now, &row);
            });
            let waits = row.with(|record| !record.replied && !record.story.was_given());
            if waits {
                self.queued(driver.clock.now(), own, &row);
            }
            if !call.is_open() {
                break; // a rejected row rejects its request
            }
        }
    }
}

impl Effect {
    pub(super) fn act(self, driver: &Arc<Driver>) {
        match self {
            Self::Launch(attempt) => attempt::launch(driver, attempt),
            Self::Tell(told, verdict) => {
                // The client may have gone away just now; its guard cleans up.
                let _ = told.send(verdict);
            }
            Self::Code(work) => work.start(driver),
            Self::Probe(key, instance) => attempt::probe(driver, key, instance),
            Self::Order(instance, number, order) => instance.order(number, order),
            Self::Wake(..) | Self::Discard(_) => {}
        }
    }
}

impl Job {
    /// The record of its end.
    fn note(&self, ended: Time, ok: bool) -> Note {
        let mut own = self.payloads().filter_map(Payload::row);
        let arrived = own.next().map(|row| row.call.arrived);
        let rows = u32::from(arrived.is_some()) + own.count() as u32;
        let done = Done { started: self.started, ended, role: self.role, rows, ok, arrived };
        Note::Job { done, pool: self.pool.clone(), instance: self.instance.clone() }
    }
}

impl Payload {
    /// When nobody waits for it any more.
    fn deadline(&self) -> Time {
        match self {
            Self::Row(row) | Self::Check(row) => row.call.deadline(),
            Self::Parity(parity) => parity.deadline,
        }
    }
}

fn outcome(pool: &Pool, by: By) -> Outcome {
    match by {
        By::Model => Outcome::Exact,
        By::Copy => Outcome::Hedged,
        By::StandIn if pool.codes().backup.is_some() => Outcome::Backup,
        By::StandIn => Outcome::StandIn,
        By::Reconstruction => Outcome::Reconstructed,
    }
}

/// The answer of a model that gives one instead of an error, for clients that take any.
fn default_answer(row: &QueryRow) -> Option<(Outcome, Output)> {
    let Call { pool, terms, .. } = &*row.call;
    let is_given = pool.standing().is_some_and(|standing| standing.in_force.default_answer);
    if terms.accept != Accept::Any || !is_given {
        return None;
    }
    Some((Outcome::Default, Output::of(pool.codes().default_answer.clone()?, 0)))
}

/// The share that a worker should charge a run to. Redundant models are charged to the share of their queries.
fn share(driver: &Driver, job: &Job) -> Option<Arc<str>> {
    let share = job.payloads().find_map(|payload| payload.row()?.call.terms.share);
    match share {
        Some(ShareKey(share)) => Some(driver.shares.name(share).clone()),
        None if job.predicts() => None,
        None => Some(format!("{OWN_SHARE}{}", job.pool.model.name).into()),
    }
}

/// How long a query that only compares answers may wait: as long as its client would have.
pub(super) fn patience(call: &Call) -> Duration {
    call.deadline().since(call.arrived)
}

/// What a row's last failure was, for its client: an earlier one is the reason why a run was withheld, and a stand-in's failure
/// does not explain a missing prediction.
pub(super) fn note_failure(row: &QueryRow, failure: Failure, error: &Error) {
    row.with(|record| {
        let earlier = record.failure.take().filter(|_| failure == Failure::Withheld);
        record.failure = earlier.or_else(|| Some(error.clone()));
        record.attempts = record.attempts.saturating_add(1);
    });
}
