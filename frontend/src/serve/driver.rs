//! Drives the dispatcher: events in, actions out, inline.
//!
//! There is no dispatcher task and no queue to it. Whoever has an event (a request handler, a job's completion, the
//! alarm) takes the lock, lets the dispatcher react, notes under the same lock what the actions say about the ledger,
//! and does what is left to do (start jobs, wake handlers) after letting go. A request that finds an idle instance thus
//! costs one lock and no hand-off before its job is on its way. The rejected alternative, a task with a channel, costs
//! two wake-ups per event: more than the whole time that a hop may add.
//!
//! Actions are carried out in order per ledger, but effects of two events may overtake each other between the locks: a
//! job may be told to stop before it was started. Its stop signal is made under the lock, so it is not lost.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::alarm::{Alarm, Wake};
use super::clock::{Clock, Timers};
use super::coding;
use super::effect::{Effect, Garbage};
use super::inputs::{Inputs, Row};
use super::instance::Instance;
use super::job::{Ending, Launch};
use super::ledger::{CallId, Failed, Ledger, Running, Stop, Verdict};
use super::outcome::Outcome;
use super::outputs::RowAnswer;
use super::pool::Pool;
use super::terms::Terms;
use crate::config;
use crate::dispatch::{
    Action, Actions, Answer, Dispatcher, Event, Failure, InstanceId, InstanceSpec, Job, JobId, PoolId,
    PoolStatus, Query, QueryId, Reject, Rows, Settings, ShapeId,
};

/// The dispatcher with what it needs to act.
pub(crate) struct Driver {
    pub(super) clock: Clock,
    pub(super) runtime: Handle,
    pub(super) limits: config::Instances,
    alarm: Alarm,
    state: Mutex<State>,
}

/// A request to be answered.
pub(crate) struct Submission {
    pub(crate) pool: Arc<Pool>,
    pub(crate) inputs: Arc<Inputs>,
    pub(crate) shape: ShapeId,
    pub(crate) terms: Terms,
    pub(crate) codable: bool,
}

/// A request that is being answered. Dropped before its verdict it is cancelled.
pub(crate) struct Ticket {
    driver: Arc<Driver>,
    call: Option<CallId>,
    verdict: oneshot::Receiver<Verdict>,
}

struct State {
    dispatcher: Dispatcher,
    ledger: Ledger,
    /// Reused from event to event.
    actions: Actions,
    /// Events that follow from actions, handled under the same lock.
    follow_up: Vec<Event>,
    /// The event at hand is a client going away.
    cancelling: bool,
}

type Effects = SmallVec<[Effect; 4]>;

impl Driver {
    /// Must be called inside a runtime.
    pub(crate) fn start(
        limits: config::Instances,
        settings: Settings,
        timers: Timers,
    ) -> io::Result<Arc<Self>> {
        let dispatcher = Dispatcher::new(settings, seed());
        let state = State {
            dispatcher,
            ledger: Ledger::default(),
            actions: Actions::new(),
            follow_up: Vec::new(),
            cancelling: false,
        };
        let driver = Arc::new(Self {
            clock: Clock::start(),
            runtime: Handle::current(),
            limits,
            alarm: Alarm::new(timers),
            state: Mutex::new(state),
        });
        driver.alarm.start(Arc::downgrade(&driver))?;
        Ok(driver)
    }

    /// Hands a request's rows to the dispatcher.
    pub(crate) fn submit(self: &Arc<Self>, submission: Submission) -> Ticket {
        let (told, verdict) = oneshot::channel();
        let mut effects = Effects::new();
        let call = {
            let now = self.clock.now();
            let deadline = now + submission.terms.remaining;
            let mut state = self.state.lock();
            let call = state.ledger.open(submission.pool.clone(), told);
            for index in 0..submission.inputs.rows {
                let row = Row { inputs: submission.inputs.clone(), index };
                let id = state.ledger.enter(call, row, (now, deadline));
                let query = Query {
                    id,
                    pool: submission.pool.id,
                    shape: submission.shape,
                    deadline,
                    priority: submission.terms.priority,
                    accept: submission.terms.accept,
                    codable: submission.codable,
                };
                state.react(self, Event::QueryArrived(query), &mut effects);
                if state.ledger.call(call).is_none() {
                    break; // one row was refused, and with it the request
                }
            }
            call
        };
        self.act(effects);
        Ticket { driver: self.clone(), call: Some(call), verdict }
    }

    /// Something happened.
    pub(crate) fn on(self: &Arc<Self>, event: Event) {
        let mut effects = Effects::new();
        self.state.lock().react(self, event, &mut effects);
        self.act(effects);
    }

    /// An instance joins, or serves something else from now on.
    pub(crate) fn join(self: &Arc<Self>, instance: &Arc<Instance>, spec: InstanceSpec) {
        let mut effects = Effects::new();
        {
            let mut state = self.state.lock();
            state.ledger.instances.insert(instance.id, instance.clone());
            state.react(self, Event::InstanceJoined(instance.id, spec), &mut effects);
        }
        self.act(effects);
    }

    /// An instance is gone.
    pub(crate) fn leave(self: &Arc<Self>, instance: InstanceId) {
        let mut effects = Effects::new();
        {
            let mut state = self.state.lock();
            state.react(self, Event::InstanceLeft(instance), &mut effects);
            state.ledger.instances.remove(&instance);
        }
        self.act(effects);
    }

    /// A job ended, well or not.
    pub(super) fn finished(self: &Arc<Self>, job: JobId, ending: Ending) {
        let mut effects = Effects::new();
        self.state.lock().finish(self, job, ending, &mut effects);
        self.act(effects);
    }

    /// How a pool is doing.
    pub(crate) fn status(&self, pool: PoolId) -> Option<PoolStatus> {
        self.state.lock().dispatcher.status(pool)
    }

    /// Whether an instance takes work.
    pub(crate) fn in_service(&self, instance: InstanceId) -> bool {
        self.state.lock().dispatcher.in_service(instance)
    }

    fn abandon(self: &Arc<Self>, call: CallId) {
        let mut effects = Effects::new();
        {
            let mut state = self.state.lock();
            if let Some((closed, open)) = state.ledger.close(call) {
                state.cancelling = true;
                for query in open {
                    state.react(self, Event::QueryCancelled(query), &mut effects);
                }
                state.cancelling = false;
                effects.push(Effect::Discard(Garbage::Call(closed)));
            }
        }
        self.act(effects);
    }

    fn act(self: &Arc<Self>, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Wake(at) => self.alarm.set(self.clock.instant(at)),
                other => other.act(self),
            }
        }
    }
}

impl Wake for Driver {
    fn wake(self: Arc<Self>) {
        self.on(Event::TimerFired);
    }
}

impl State {
    /// Lets the dispatcher react to an event, and to what follows from its actions.
    fn react(&mut self, driver: &Driver, event: Event, effects: &mut Effects) {
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

    fn finish(&mut self, driver: &Driver, job: JobId, ending: Ending, effects: &mut Effects) {
        let Some(running) = self.ledger.jobs.get_mut(&job) else { return };
        let took = driver.clock.now().since(running.started);
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

impl Ticket {
    /// Waits for the verdict.
    pub(crate) async fn verdict(mut self) -> Verdict {
        let verdict = (&mut self.verdict).await;
        self.call = None;
        verdict.unwrap_or(Err(Failed { why: Reject::Failed, last: None }))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            self.driver.abandon(call);
        }
    }
}

/// Frontends started together should not probe in step.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
