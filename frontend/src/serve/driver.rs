//! Drives the dispatcher inline: events in, actions out.
//!
//! The dispatcher is not a task with a queue. The source of an event (a request handler, a finished job, the alarm)
//! takes the lock, lets the dispatcher react, updates the ledger from the actions, and does the remaining work
//! (starting jobs, waking handlers) after releasing the lock. A request that finds an idle instance thus costs one lock
//! and no hand-off. A task with a channel was rejected, because it costs two wake-ups per event: more than the time
//! that a hop may add.
//!
//! Actions are applied to the ledger in order, but effects of two events may overtake each other after the lock: a job
//! may be stopped before it is started. Its stop signal is made under the lock, so it is not lost.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use parm_dispatch::replay::Tape;
use parm_dispatch::{
    Dispatcher, Event, GroupId, InstanceId, InstanceSpec, JobId, Judgement, Output, Pair, PoolId, QueryId,
    QuerySpec, Reject, Settings, ShapeId, Time, Verdict as Checked,
};
use parm_settings::{InForce, PoolSettings};
use parm_shares::{Account, Table};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::alarm::{Alarm, Wake};
use super::clock::{Clock, Timers};
use super::coding::{Decoded, Desk, ParityQuery, Stock};
use super::effect::{Effect, Effects, Garbage};
use super::held::Held;
use super::inputs::{Inputs, Row};
use super::instance::Instance;
use super::job::Ending;
use super::ledger::{CallId, Failed, Verdict};
use super::pool::Pool;
use super::reading::{InstanceReading, ModelReading, Payer, Seen};
use super::state::State;
use super::terms::Terms;
use super::tokens::Tokens;
use crate::config;
use crate::console::moment::Glance;
use crate::console::{Happening, Journal, KeptQuery, Kind, LogRate, Wanted};
use crate::error::Error;
use crate::lifelines::Lifelines;
use crate::record::{Note, Recorder};

/// The dispatcher and its environment.
pub(crate) struct Driver {
    pub(super) clock: Clock,
    pub(crate) timers: Timers,
    pub(super) runtime: Handle,
    pub(super) limits: config::Instances,
    /// Configured shares; the dispatcher knows them by number.
    pub(crate) shares: Arc<Table>,
    pub(crate) recorder: Recorder,
    /// The error that stopped the recording to a file, if one did.
    pub(crate) recording_stopped: Mutex<Option<String>>,
    pub(crate) journal: Journal,
    /// Log lines about instances.
    pub(super) lines: LogRate<(u32, Kind)>,
    /// Log lines about answers that an instance cut.
    pub(super) cuts: LogRate<u32>,
    pub(super) stock: Arc<Stock>,
    pub(super) desk: Desk,
    pub(crate) lifelines: Lifelines,
    /// Folder for the latest events if the dispatcher panics.
    pub(super) crash_folder: Option<PathBuf>,
    alarm: Alarm,
    state: Mutex<State>,
}

/// A request to answer.
pub(crate) struct Submission {
    pub(crate) pool: Arc<Pool>,
    pub(crate) inputs: Arc<Inputs>,
    pub(crate) shape: ShapeId,
    pub(crate) terms: Terms,
    pub(crate) codable: bool,
    /// The length of its rows, if they may be padded.
    pub(crate) padded: Option<u32>,
}

/// A request in progress. Dropping it before its verdict cancels it.
pub(crate) struct Ticket {
    driver: Arc<Driver>,
    call: Option<CallId>,
    verdict: oneshot::Receiver<Verdict>,
}

impl Driver {
    /// Must be called inside a runtime.
    pub(crate) fn start(
        limits: config::Instances,
        settings: Settings,
        shares: Arc<Table>,
        timers: Timers,
        crash_folder: Option<PathBuf>,
    ) -> io::Result<Arc<Self>> {
        let seed = timers.seed();
        let tape = Tape::new(&settings, seed, true);
        let mut dispatcher = Dispatcher::new(settings, seed);
        dispatcher.follow_queries(true);
        let state = State::new(dispatcher, tape);
        let driver = Arc::new(Self {
            clock: Clock::start(),
            timers,
            runtime: Handle::current(),
            limits,
            shares,
            recorder: Recorder::default(),
            recording_stopped: Mutex::default(),
            journal: Journal::default(),
            lines: LogRate::default(),
            cuts: LogRate::default(),
            stock: Arc::default(),
            desk: Desk::default(),
            lifelines: Lifelines::default(),
            crash_folder,
            alarm: Alarm::new(timers),
            state: Mutex::new(state),
        });
        driver.alarm.start(Arc::downgrade(&driver), &driver.lifelines)?;
        Ok(driver)
    }

    /// Submits a request's rows to the dispatcher.
    pub(crate) fn submit(self: &Arc<Self>, submission: Submission) -> Ticket {
        let (told, verdict) = oneshot::channel();
        let mut effects = Effects::new();
        let call = {
            let now = self.clock.now();
            let rows = submission.inputs.rows as u32;
            self.recorder.note(|| Note::Query { at: now, pool: submission.pool.clone(), rows });
            let deadline = submission.terms.deadline.max(now);
            let mut state = self.state.lock();
            if submission.pool.removed.load(Ordering::Acquire) {
                // The dispatcher would take it for a model whose instances are about to join.
                let _ = told.send(Err(Failed { why: Reject::NoInstance, last: None, attempts: 0 }));
                return Ticket { driver: self.clone(), call: None, verdict };
            }
            let call = state.ledger.open(submission.pool.clone(), told);
            for index in 0..submission.inputs.rows {
                let row = Row { inputs: submission.inputs.clone(), index };
                let story = state.archive.room();
                let id = state.ledger.enter(call, row, [now, deadline], story);
                let query = QuerySpec {
                    id,
                    pool: submission.pool.id,
                    shape: submission.shape,
                    deadline,
                    priority: submission.terms.priority,
                    share: submission.terms.share,
                    accept: submission.terms.accept,
                    codable: submission.codable,
                    size: submission.padded.unwrap_or_else(|| submission.inputs.size()),
                    padded: submission.padded.is_some(),
                };
                state.react(self, Event::QueryArrived(query), &mut effects);
                if state.ledger.call(call).is_none() {
                    break; // a rejected row rejects its request
                }
            }
            call
        };
        self.act(effects);
        Ticket { driver: self.clone(), call: Some(call), verdict }
    }

    /// Makes the dispatcher panic at the next query.
    #[cfg(test)]
    pub(super) fn plant_panic(&self) {
        self.state.lock().planted = true;
    }

    /// The dispatcher's time.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Handles an event.
    pub(crate) fn on(self: &Arc<Self>, event: Event) {
        let mut effects = Effects::new();
        self.state.lock().react(self, event, &mut effects);
        self.act(effects);
    }

    /// Adds an instance, or updates its models.
    pub(crate) fn join(self: &Arc<Self>, instance: &Arc<Instance>, spec: InstanceSpec) {
        // Before its first job, which opens the connection.
        let is_new = instance.tokens.get().is_none();
        let tokens = instance.tokens.get_or_init(|| Arc::new(Tokens::of(self, instance.id)));
        if is_new {
            instance.client.watch(tokens.clone());
        }
        let mut effects = Effects::new();
        let returns = {
            let mut state = self.state.lock();
            let known = state.ledger.instances.insert(instance.id, instance.clone());
            state.react(self, Event::InstanceJoined(instance.id, spec), &mut effects);
            known.is_none() && !is_new
        };
        self.act(effects);
        if returns {
            // It had no models for a while, and its connection stayed.
            tokens.repeat();
        }
    }

    /// Removes an instance.
    pub(crate) fn leave(self: &Arc<Self>, instance: InstanceId) {
        let mut effects = Effects::new();
        {
            let mut state = self.state.lock();
            state.react(self, Event::InstanceLeft(instance), &mut effects);
            state.ledger.instances.remove(&instance);
        }
        self.act(effects);
    }

    /// Handles the end of a job.
    pub(super) fn finished(self: &Arc<Self>, job: JobId, ending: Ending) {
        let mut effects = Effects::new();
        self.state.lock().finish(self, job, ending, &mut effects);
        self.act(effects);
    }

    /// Handles the end of an encoding.
    pub(super) fn encoded(self: &Arc<Self>, group: GroupId, made: Result<Vec<ParityQuery>, Error>) {
        let mut effects = Effects::new();
        self.state.lock().encoded(self, group, made, &mut effects);
        self.act(effects);
    }

    /// Handles the end of a decoding.
    pub(super) fn decoded(self: &Arc<Self>, group: GroupId, query: QueryId, made: Result<Decoded, Error>) {
        let mut effects = Effects::new();
        self.state.lock().decoded(self, group, query, made, &mut effects);
        self.act(effects);
    }

    /// Handles the end of a group's comparison.
    pub(super) fn compared(self: &Arc<Self>, group: GroupId, made: Result<Vec<Checked>, Error>) {
        let mut effects = Effects::new();
        self.state.lock().compared(self, group, made, &mut effects);
        self.act(effects);
    }

    /// Handles the judgement of a stand-in's answer.
    pub(super) fn judged(self: &Arc<Self>, query: QueryId, output: Output, judgement: Judgement) {
        let mut effects = Effects::new();
        {
            let mut state = self.state.lock();
            state.sure(query, judgement);
            state.react(self, Event::Judged(query, output, judgement), &mut effects);
        }
        self.act(effects);
    }

    /// Handles the comparison of predictions with their stand-ins' answers.
    pub(super) fn checked(self: &Arc<Self>, said: Vec<(Pair, Option<bool>)>) {
        let mut effects = Effects::new();
        self.state.lock().checked(self, said, &mut effects);
        self.act(effects);
    }

    /// Puts a pool's settings into effect.
    pub(crate) fn configure(self: &Arc<Self>, pool: &Arc<Pool>, settings: PoolSettings, in_force: InForce) {
        let mut effects = Effects::new();
        {
            let mut state = self.state.lock();
            state.ledger.pools.insert(pool.id, pool.clone());
            let (settings, in_force) = (Box::new(settings), Box::new(in_force));
            let event = Event::SettingsChanged { pool: pool.id, settings, in_force };
            state.react(self, event, &mut effects);
        }
        self.act(effects);
    }

    /// Adds a version of a model, which inherits the state of the version before.
    pub(crate) fn version_added(self: &Arc<Self>, pool: PoolId, predecessor: PoolId) {
        let mut effects = Effects::new();
        self.state.lock().react(self, Event::VersionAdded { pool, predecessor }, &mut effects);
        self.act(effects);
    }

    /// Removes a model.
    pub(crate) fn forget(self: &Arc<Self>, pool: PoolId) {
        let mut effects = Effects::new();
        {
            let mut state = self.state.lock();
            state.react(self, Event::PoolRemoved(pool), &mut effects);
            state.ledger.pools.remove(&pool);
        }
        self.act(effects);
    }

    /// Amount of state kept for requests and instances.
    pub(crate) fn held(&self) -> Held {
        let state = self.state.lock();
        let (ledger, dispatched) = (state.ledger.held(), state.dispatcher.held());
        Held { ledger, dispatched }
    }

    /// Accounts of all shares.
    pub(crate) fn shared(&self) -> Vec<(Payer, Account)> {
        self.state.lock().dispatcher.shares().map(|(payer, account)| (payer.into(), *account)).collect()
    }

    /// The median time of a model's runs, once enough are known.
    pub(crate) fn usual(&self, pool: PoolId) -> Option<Duration> {
        self.state.lock().dispatcher.service(pool).map(|[usual, _]| usual)
    }

    /// How a model is.
    pub(crate) fn reading(&self, pool: PoolId) -> Option<ModelReading> {
        let now = self.now();
        self.state.lock().dispatcher.reading(now, pool).map(ModelReading::from)
    }

    /// How an instance is.
    pub(crate) fn instance(&self, id: InstanceId) -> Option<InstanceReading> {
        self.instances(&[id]).remove(&id)
    }

    /// How these instances are.
    pub(crate) fn instances(&self, ids: &[InstanceId]) -> HashMap<InstanceId, InstanceReading> {
        self.glance(&[], ids).instances
    }

    /// How these models and instances are, read under one lock.
    pub(crate) fn glance(&self, pools: &[Arc<Pool>], instances: &[InstanceId]) -> Glance {
        let mut state = self.state.lock();
        let now = self.now();
        let State { dispatcher, ledger, .. } = &mut *state;
        let mut oldest = HashMap::new();
        for running in ledger.jobs.values().filter(|running| running.outputs.is_none()) {
            let job = (running.started, running.pool.id);
            let known = oldest.entry(running.instance.id).or_insert(job);
            *known = job.min(*known);
        }
        let reading = |id: &InstanceId| {
            let age = |(since, pool): &(Time, PoolId)| {
                (now.since(*since), dispatcher.service(*pool).map(|[usual, _]| usual))
            };
            let slowness = ledger.instances.get(id).and_then(|own| own.slowness());
            let seen = Seen { oldest: oldest.get(id).map(age), slowness };
            Some((*id, InstanceReading::new(&dispatcher.instance_reading(now, *id)?, seen)))
        };
        let instances = instances.iter().filter_map(reading).collect();
        let mut of_pool = |pool: &Arc<Pool>| {
            let reading = dispatcher.reading(now, pool.id)?.into();
            Some((reading, dispatcher.groups(now, pool.id).map(Into::into)))
        };
        Glance { instances, pools: pools.iter().map(&mut of_pool).collect() }
    }

    /// Returns how many queries are kept, since when, and those that match.
    pub(crate) fn queries(&self, wanted: &Wanted) -> (usize, Option<Time>, Vec<KeptQuery>) {
        self.state.lock().archive.find(wanted)
    }

    /// A kept query.
    pub(crate) fn query(&self, id: QueryId) -> Option<KeptQuery> {
        self.state.lock().archive.get(id)
    }

    /// Converts the dispatcher's time to milliseconds since 1970.
    pub(crate) fn wall_ms(&self, at: Time) -> u64 {
        self.clock.wall_ms(at)
    }

    /// Now, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.wall_ms(self.now())
    }

    /// Adds an event to the journal.
    pub(crate) fn tell(&self, kind: Kind, what: Happening) {
        self.journal.tell(self.now_ms(), kind, what);
    }

    /// Whether an instance accepts work of a pool.
    pub(crate) fn takes(&self, instance: InstanceId, pool: PoolId) -> bool {
        self.state.lock().dispatcher.takes(instance, pool)
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
                Effect::Wake(at, turn) => self.alarm.set(self.clock.instant(at), turn),
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

impl Ticket {
    /// Waits for the verdict.
    pub(crate) async fn verdict(mut self) -> Verdict {
        let verdict = (&mut self.verdict).await;
        self.call = None;
        verdict.unwrap_or(Err(Failed { why: Reject::Failed, last: None, attempts: 0 }))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            self.driver.abandon(call);
        }
    }
}
