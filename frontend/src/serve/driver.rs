//! Drives the dispatcher inline: calls in, actions out.
//!
//! The dispatcher is not a task with a queue. The source of an event (a request handler, a finished run, the alarm)
//! takes the lock, tells the dispatcher, and does the remaining work (starting runs, waking handlers) after releasing the
//! lock. A request that finds an idle instance thus costs one lock and no hand-off. A task with a channel was rejected,
//! because it costs two wake-ups per event: more than the time that a hop may add.
//!
//! Effects of two events may overtake each other after the lock: a run may be stopped before it is started. Its stop
//! signal is made under the lock, so it is not lost.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use parm_dispatcher::{
    InstanceKey, InstanceSpec, JobKey, ModelSettings, Payer, QueryKey, Reject, Shape, Time,
};
use parm_settings::{Cost, InForce, PoolSettings};
use parm_shares::{Account, Table};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::agreement::Pair;
use super::alarm::{Alarm, Wake};
use super::attempt::{Attempt, Ending};
use super::call::{Call, Failed, Verdict};
use super::clock::{Clock, Timers};
use super::coded::Grouped;
use super::coding::{Decoded, Decoding, Desk, ParityQuery, Stock};
use super::crash::Told;
use super::grants::Listener;
use super::held::Held;
use super::inputs::Inputs;
use super::instance::{Instance, InstanceId};
use super::lines::{Keys, Lines};
use super::pool::{Pool, PoolId};
use super::reading::{self, InstanceReading, ModelReading};
use super::state::{Effect, Effects, State};
use super::terms::Terms;
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
    /// Log lines about answers that an instance cut.
    pub(super) cuts: LogRate<u32>,
    pub(super) stock: Arc<Stock>,
    pub(super) desk: Desk,
    pub(crate) lifelines: Lifelines,
    /// Folder for the latest calls if the dispatcher panics.
    pub(super) crash_folder: Option<PathBuf>,
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
        crash_folder: Option<PathBuf>,
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

    /// Changes the state under the lock, and does what follows after it.
    fn with<T>(self: &Arc<Self>, change: impl FnOnce(&mut State, &mut Effects) -> T) -> T {
        let mut effects = Effects::new();
        let said = change(&mut self.state.lock(), &mut effects);
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
        let Submission { pool, inputs, shape, terms, codable } = submission;
        self.recorder.note(|| Note::Query { at: now, pool: pool.clone(), rows: inputs.rows as u32 });
        let call = self.with(|state, effects| {
            if pool.removed.load(Ordering::Acquire) || !state.pools.contains_key(&pool.id) {
                let _ = told.send(Err(Failed { why: Reject::NoInstance, last: None, attempts: 0 }));
                return None;
            }
            let stories = || state.archive.room();
            let call = Arc::new(Call::new((pool, inputs), (terms, codable), (now, shape), told, stories));
            state.calls += 1;
            state.submit(self, &call, effects);
            Some(call)
        });
        Ticket { driver: self.clone(), call, verdict }
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

    /// Adds an instance, or updates its models and slots. It gets jobs again if it was held.
    pub(crate) fn join(self: &Arc<Self>, instance: &Arc<Instance>, spec: &InstanceSpec) {
        // Before its first job, which may open a connection.
        if instance.first_join() {
            instance.client.watch(Arc::new(Listener::of(self, instance)));
        }
        self.with(|state, effects| match state.keys.get(&instance.id).copied() {
            Some(key) => {
                state.react(self, Told::Serves(key), effects, |state, now| {
                    state.dispatcher.serve(now, key, spec);
                    state.dispatcher.hold(now, key, false);
                });
            }
            None => {
                state.react(self, Told::Joined, effects, |state, now| {
                    let key = state.dispatcher.join(now, spec);
                    state.keys.insert(instance.id, key);
                    state.instances.insert(key, instance.clone());
                    // It may have been here before, and still have its connection.
                    state.dispatcher.shared(now, key, instance.is_shared());
                });
            }
        });
    }

    /// Handles what an instance says on one of its connections.
    pub(super) fn heard(self: &Arc<Self>, instance: &Instance, connection: u64, told: parm_grants::Told) {
        self.with(|state, effects| state.heard(self, instance, (connection, told), effects));
    }

    /// Takes the measured cost of a stand-in, to show until the dispatcher knows it.
    pub(super) fn know_cost(&self, pool: PoolId, cost: Cost) {
        self.state.lock().pools.get_mut(&pool).into_iter().for_each(|lines| lines.cost = Some(cost));
    }

    /// Gives an instance no further jobs; it completes those that it has.
    pub(crate) fn drain(self: &Arc<Self>, instance: InstanceId) {
        self.with(|state, effects| {
            let Some(key) = state.keys.get(&instance).copied() else { return };
            state.react(self, Told::Held(key, true), effects, |state, now| {
                state.dispatcher.hold(now, key, true);
            });
        });
    }

    /// Removes an instance.
    pub(crate) fn leave(self: &Arc<Self>, instance: InstanceId) {
        self.with(|state, effects| {
            let Some(key) = state.keys.remove(&instance) else { return };
            state.react(self, Told::Left(key), effects, |state, now| {
                state.dispatcher.leave(now, key);
                state.instances.remove(&key);
                state.agreements.leave(key);
                state.running.values_mut().filter(|own| own.at == key).for_each(|own| own.forsake());
            });
        });
    }

    /// A probed instance works.
    pub(super) fn probed(self: &Arc<Self>, instance: InstanceKey) {
        self.with(|state, effects| {
            state.react(self, Told::Probed(instance), effects, |state, now| {
                state.dispatcher.probed(now, instance);
            });
        });
    }

    /// Handles the end of an attempt.
    pub(super) fn finished(self: &Arc<Self>, job: JobKey, ending: Ending) {
        self.with(|state, effects| state.finish(self, job, ending, effects));
    }

    /// Handles comparisons of predictions with their stand-ins' answers.
    pub(super) fn compared(self: &Arc<Self>, attempt: &Attempt, said: &[(Pair, bool)]) {
        self.with(|state, effects| state.compared(self, attempt, said, effects));
    }

    /// Handles the end of an encoding.
    pub(super) fn encoded(self: &Arc<Self>, group: Grouped, made: Result<Vec<ParityQuery>, Error>) {
        self.with(|state, effects| state.encoded(self, group, made, effects));
    }

    /// Handles the end of a decoding.
    pub(super) fn decoded(self: &Arc<Self>, of: &Decoding, made: Result<Decoded, Error>) {
        self.with(|state, effects| state.decoded(self, of, made, effects));
    }

    /// Adds a pool, whose approximate answers count with those of an earlier version.
    pub(crate) fn add(self: &Arc<Self>, pool: &Arc<Pool>, before: Option<PoolId>) {
        self.with(|state, _| {
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

    /// Puts a pool's settings into effect.
    pub(crate) fn configure(self: &Arc<Self>, pool: &Pool, settings: PoolSettings, in_force: InForce) {
        self.with(|state, effects| state.configure(self, pool, (settings, in_force), effects));
    }

    /// Removes a model.
    pub(crate) fn forget(self: &Arc<Self>, pool: PoolId) {
        self.with(|state, effects| state.forget(self, pool, effects));
    }

    /// The names of all pools' models.
    pub(super) fn model_keys(&self) -> BTreeMap<PoolId, Keys> {
        self.state.lock().model_keys()
    }

    /// How many of so many instances run only a pool's parities.
    pub(super) fn apart(&self, pool: PoolId, instances: usize) -> usize {
        self.state.lock().pools.get(&pool).map_or(0, |lines| lines.apart(instances))
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

    /// Accounts of all shares.
    pub(crate) fn shared(&self) -> Vec<(reading::Payer, Account)> {
        self.state.lock().accounts()
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
        self.glance(&[], ids).instances
    }

    /// How these models and instances are, read under one lock.
    pub(crate) fn glance(&self, pools: &[Arc<Pool>], instances: &[InstanceId]) -> Glance {
        let mut state = self.state.lock();
        let now = self.now();
        let instances = instances.iter().filter_map(|id| Some((*id, state.instance(now, *id)?))).collect();
        let mut of_pool = |pool: &Arc<Pool>| Some((state.reading(now, pool.id)?, state.groups(now, pool.id)));
        Glance { instances, pools: pools.iter().map(&mut of_pool).collect() }
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

    /// A kept query.
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

    fn abandon(self: &Arc<Self>, call: &Arc<Call>) {
        if call.close().is_none() {
            return; // it has its verdict
        }
        self.with(|state, effects| {
            state.react(self, Told::Cancelled, effects, |state, now| {
                let mut discarded = Effects::new();
                state.cancel(now, call, &mut discarded);
                discarded
            })
        });
    }
}

impl Wake for Driver {
    fn wake(self: Arc<Self>) {
        self.with(|state, effects| {
            state.wakes_at = None;
            state.react(&self, Told::Ticked, effects, |state, now| {
                state.dispatcher.tick(now);
                state.coded.values_mut().for_each(|coded| coded.coder.tick(now));
            });
        });
    }
}

impl Ticket {
    /// Waits for the verdict.
    pub(crate) async fn verdict(mut self) -> Verdict {
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
