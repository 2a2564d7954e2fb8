//! Drives the dispatcher inline: calls in, actions out.
//!
//! The dispatcher is not a task with a queue. The source of an event (a request handler, a finished run, the alarm)
//! takes the lock, tells the dispatcher, and does the remaining work (starting runs, waking handlers) after releasing the
//! lock. A request that finds an idle instance thus costs one lock and no hand-off. A task with a channel was rejected,
//! because it costs two wake-ups per event: more than the time that a hop may add.
//!
//! Effects of two events may overtake each other after the lock: a run may be stopped before it is started. Its stop
//! signal is made under the lock, so it is not lost.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use parm_dispatcher::{InstanceSpec, ModelSettings, Payer, QueryKey, Reject, Shape, Time};
use parm_shares::{Account, Table};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::attempt::Unneeded;
use super::call::{Call, Failed, Verdict};
use super::clock::{Alarm, Clock, Timers};
use super::coding;
use super::inputs::Inputs;
use super::instance::{Instance, InstanceId, Listener};
use super::lines::Lines;
use super::pool::{Pool, PoolId};
use super::reading::{GroupsReading, InstanceReading, ModelReading};
use super::state::{Effect, State};
use super::terms::Terms;
use crate::config;
use crate::console::{Happening, Journal, KeptQuery, Kind, LogRate, Wanted};
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
    /// Log lines about answers that an instance cut.
    pub(super) cuts: LogRate<u32>,
    /// Places of codings that run on other threads.
    pub(super) coding: Arc<Semaphore>,
    pub(crate) lifelines: Lifelines,
    alarm: Alarm,
    state: Mutex<State>,
}

/// A request to answer.
pub(crate) struct Submission {
    pub(crate) pool: Arc<Pool>,
    pub(crate) inputs: Arc<Inputs>,
    pub(crate) shape: Shape,
    pub(crate) terms: Terms,
    pub(crate) codable: bool,
}

/// A request in progress. Dropping it before its verdict cancels it.
pub(crate) struct Ticket {
    driver: Arc<Driver>,
    call: Option<Arc<Call>>,
    verdict: oneshot::Receiver<Verdict>,
}

impl Driver {
    /// Must be called inside a runtime.
    pub(crate) fn start(
        limits: config::Instances,
        shares: Arc<Table>,
        timers: Timers,
    ) -> io::Result<Arc<Self>> {
        let mut state = State::new();
        let terms = shares
            .iter()
            .map(|(share, _, settings)| (Payer::Share(parm_dispatcher::ShareKey(share)), settings.terms()));
        let terms: Vec<_> = terms.collect();
        if !terms.is_empty() {
            state.dispatcher.promise(&terms);
        }
        let driver = Arc::new(Self {
            clock: Clock::start(),
            timers,
            runtime: Handle::current(),
            limits,
            shares,
            recorder: Recorder::default(),
            recording_stopped: Mutex::default(),
            journal: Journal::default(),
            cuts: LogRate::default(),
            coding: coding::places(),
            lifelines: Lifelines::default(),
            alarm: Alarm::new(timers),
            state: Mutex::new(state),
        });
        let weak = Arc::downgrade(&driver);
        let wake = move || match weak.upgrade() {
            Some(driver) => {
                driver.wake();
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        };
        driver.alarm.start(wake, &driver.lifelines)?;
        Ok(driver)
    }

    /// Reads or changes the state under the lock, and does what follows after it.
    pub(super) fn with<T>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> T) -> T {
        let (said, effects) = {
            let mut state = self.state.lock();
            (change(&mut state), std::mem::take(&mut state.effects))
        };
        for effect in effects {
            match effect {
                Effect::Wake(at, turn) => self.alarm.set(self.clock.instant(at), turn),
                other => other.act(self),
            }
        }
        said
    }

    /// Submits a request's rows to the dispatcher.
    pub(crate) fn submit(self: &Arc<Self>, submission: Submission) -> Ticket {
        let (told, verdict) = oneshot::channel();
        let now = self.clock.now();
        let pool = &submission.pool;
        let rows = submission.inputs.rows as u32;
        self.recorder.note(|| Note::Query { at: now, pool: pool.clone(), rows });
        let call = self.with(|state| {
            if !state.pools.contains_key(&submission.pool.id) {
                let _ = told.send(Err(Failed { why: Reject::NoInstance, last: None, attempts: 0 }));
                return None;
            }
            let call = Arc::new(Call::new(submission, now, told));
            state.calls += 1;
            state.submit(self, &call);
            Some(call)
        });
        Ticket { driver: self.clone(), call, verdict }
    }

    /// The dispatcher's time.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Adds an instance, or updates its models and slots. It gets jobs again if it was held.
    pub(crate) fn join(self: &Arc<Self>, instance: &Arc<Instance>, spec: &InstanceSpec) {
        // Before its first job, which may open a connection.
        if instance.first_join() {
            instance.client.watch(Arc::new(Listener::of(self, instance)));
        }
        self.with(|state| match state.keys.get(&instance.id).copied() {
            Some(key) => {
                state.react(self, |state, now| {
                    state.dispatcher.serve(now, key, spec);
                    state.dispatcher.hold(now, key, false);
                });
            }
            None => {
                state.react(self, |state, now| {
                    let key = state.dispatcher.join(now, spec);
                    state.keys.insert(instance.id, key);
                    state.instances.insert(key, instance.clone());
                    // It may have been here before, and still have its connection.
                    state.dispatcher.shared(now, key, instance.is_shared());
                });
            }
        });
    }

    /// Gives an instance no further jobs; it completes those that it has.
    pub(crate) fn drain(self: &Arc<Self>, instance: InstanceId) {
        self.with(|state| {
            let Some(key) = state.keys.get(&instance).copied() else { return };
            state.react(self, |state, now| {
                state.dispatcher.hold(now, key, true);
            });
        });
    }

    /// Removes an instance.
    pub(crate) fn leave(self: &Arc<Self>, instance: InstanceId) {
        self.with(|state| {
            let Some(key) = state.keys.remove(&instance) else { return };
            state.react(self, |state, now| {
                state.dispatcher.leave(now, key);
                state.instances.remove(&key);
                let known = state.pools.values_mut().filter_map(|lines| lines.stand_in.as_mut());
                known.for_each(|known| known.doubts.forget(key));
                // Nobody hears their ends.
                state
                    .running
                    .values()
                    .filter(|job| job.at == key)
                    .for_each(|job| job.stop.tell(Unneeded::Left));
            });
        });
    }

    /// Adds a pool. Its approximate answers count with those of another version or of the pool that it replaces, if there is one.
    pub(crate) fn add(self: &Arc<Self>, pool: &Arc<Pool>, before: Option<PoolId>) {
        self.with(|state| {
            let before = before.and_then(|before| state.pools.get(&before)).map(|lines| lines.own);
            let settings = ModelSettings::default();
            let own = match before {
                Some(before) => state.dispatcher.add_version(settings, before),
                None => state.dispatcher.add_model(settings),
            };
            state.models.insert(own, pool.id);
            state.pools.insert(pool.id, Lines::new(pool.clone(), own));
        });
    }

    /// Removes a pool. Its jobs may still answer; its queries that wait are rejected because no instance serves it.
    pub(crate) fn forget(self: &Arc<Self>, pool: PoolId) {
        self.with(|state| state.forget(self, pool));
    }

    /// Amount of state kept for requests and instances.
    pub(crate) fn held(&self) -> Held {
        let state = self.state.lock();
        let coders = state.coded.values().map(|coded| coded.coder.held());
        let (groups, members) = coders.fold((0, 0), |sum, held| (sum.0 + held.0, sum.1 + held.1));
        Held {
            requests: state.calls,
            queries: state.dispatcher.open_queries(),
            jobs: state.running.len(),
            groups,
            members,
            instances: state.instances.len(),
            pools: state.pools.len(),
        }
    }

    /// The accounts of shares, and of models without a share that used something, each with its name.
    pub(crate) fn shared(&self) -> Vec<(Payer, [String; 2], Account)> {
        self.state.lock().accounts(self)
    }

    /// The median time of a model's runs, once enough are known.
    pub(crate) fn usual(&self, pool: PoolId) -> Option<Duration> {
        self.state.lock().service(pool).map(|[usual, _]| usual)
    }

    /// How a model is.
    pub(crate) fn reading(&self, pool: PoolId) -> Option<ModelReading> {
        let now = self.now();
        self.state.lock().reading(now, pool)
    }

    /// How an instance is.
    pub(crate) fn instance(&self, id: InstanceId) -> Option<InstanceReading> {
        let now = self.now();
        self.state.lock().instance(now, id)
    }

    /// How these instances are.
    pub(crate) fn instances(&self, ids: &[InstanceId]) -> HashMap<InstanceId, InstanceReading> {
        let (state, now) = (self.state.lock(), self.now());
        ids.iter().filter_map(|id| Some((*id, state.instance(now, *id)?))).collect()
    }

    /// How these models are, and the groups of those that are coded.
    pub(crate) fn models(&self, pools: &[Arc<Pool>]) -> Vec<Option<(ModelReading, Option<GroupsReading>)>> {
        let (mut state, now) = (self.state.lock(), self.now());
        pools.iter().map(|pool| Some((state.reading(now, pool.id)?, state.groups(now, pool.id)))).collect()
    }

    /// Whether an instance accepts work of a pool.
    pub(crate) fn takes(&self, instance: InstanceId, pool: PoolId) -> bool {
        let state = self.state.lock();
        let Some((instance, lines)) = state.keys.get(&instance).zip(state.pools.get(&pool)) else {
            return false;
        };
        // One that runs only parities or the backup model serves the model too.
        let keys = lines.keys();
        [Some(keys.own), keys.parity, keys.helper]
            .into_iter()
            .flatten()
            .any(|key| state.dispatcher.takes(*instance, key))
    }

    /// Returns how many queries are kept, since when, and those that match.
    pub(crate) fn queries(&self, wanted: &Wanted) -> (usize, Option<Time>, Vec<KeptQuery>) {
        self.state.lock().archive.find(wanted)
    }

    pub(crate) fn query(&self, id: QueryKey) -> Option<KeptQuery> {
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

    /// Adds an event about a model.
    pub(super) fn tell_of(&self, pool: &Pool, text: String) {
        self.tell(Kind::Model, Happening { model: Some(pool.id), text, ..Happening::default() });
    }

    /// Tells the dispatcher and the coders that a time has come.
    fn wake(self: &Arc<Self>) {
        self.with(|state| {
            state.wakes_at = None;
            state.react(self, |state, now| {
                state.dispatcher.tick(now);
                state.coded.values_mut().for_each(|coded| coded.coder.tick(now));
            });
        });
    }

    fn abandon(self: &Arc<Self>, call: &Arc<Call>) {
        if call.close().is_none() {
            return; // it has its verdict
        }
        self.with(|state| {
            state.react(self, |state, now| state.cancel(now, call));
        });
    }
}

impl Ticket {
    /// Waits for the verdict.
    pub(super) async fn verdict(mut self) -> Verdict {
        let verdict = (&mut self.verdict).await;
        self.call = None;
        let lost =
            Failed { why: Reject::Failed(parm_dispatcher::Failure::Instance), last: None, attempts: 0 };
        verdict.unwrap_or(Err(lost))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.driver.abandon(&call);
        }
    }
}

/// State kept for requests and instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Requests without a verdict.
    pub requests: usize,
    /// Queries without a reply, parities and comparisons among them.
    pub queries: usize,
    /// Runs without an end.
    pub jobs: usize,
    /// Coding groups.
    pub groups: usize,
    /// Their members and parities without a reply.
    pub members: usize,
    /// Instances that joined.
    pub instances: usize,
    /// Models.
    pub pools: usize,
}
