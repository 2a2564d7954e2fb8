//! The state machine: one event in, any number of actions out.
//!
//! Its parts stand beside it in the order in which a query meets them: `intake` (arrival, answer, deadline), `feed`
//! (work finds an instance), `outcome` (completion, failure, lateness), `coding` and `recovery` (groups and what they
//! save), `stand_in` and `stand_in_answer` (cheaper models), `comparison` and `agreement` (whose answers are wrong), `roster` (instances come, go, are ejected).
//! It cannot fail: an event about something that is gone is ignored, as the driver may report it a moment too late.

use std::mem;
use std::time::Duration;

use parm_shares::{Book, Terms};

use super::arena::{Arena, Key};
use super::counters::Counters;
use super::group::Group;
use super::instance::{Instance, Serves};
use super::job::Job;
use super::names::Names;
use super::pool::Pool;
use super::query::Query;
use super::recovery::Reconstruction;
use super::shelf::Shelf;
use super::timers::{Timer, Timers};
use super::{
    Action, Actions, Cost, Event, InForce, InstanceId, Payer, PoolId, PoolSettings, QueryId, Settings, Step,
    Time,
};

/// Decides which instance runs what, and what each query is answered with.
pub struct Dispatcher {
    pub(super) settings: Settings,
    pub(super) queries: Arena<Query>,
    pub(super) query_names: Names<QueryId, Query>,
    pub(super) jobs: Arena<Job>,
    pub(super) groups: Arena<Group>,
    pub(super) instances: Arena<Instance>,
    pub(super) instance_names: Names<InstanceId, Instance>,
    pub(super) pools: Arena<Pool>,
    pub(super) pool_names: Names<PoolId, Pool>,
    pub(super) timers: Timers,
    pub(super) shelf: Shelf,
    /// Instances that give tokens.
    pub(super) givers: u32,
    /// Instances where others hold something.
    pub(super) crowded: u32,
    /// Instances that are home to others.
    pub(super) abroad: u32,
    /// Pools that reserve at them.
    pub(super) asking: Vec<Key<Pool>>,
    /// The wake that the driver was asked for and has not yet given.
    wake: Option<Time>,
    /// How much later than it asked for it was woken.
    pub(super) behind: Duration,
    /// The accounts of all shares of the instances' time.
    pub(super) book: Book<Payer, PoolId>,
    /// The token at hand is of an instance that a share has reserved.
    pub(super) for_reserved: bool,
    /// What had reserved the instance whose token just came.
    pub(super) met: Option<(Key<Pool>, Payer)>,
    /// The last number that was given to a reservation.
    pub(super) noted: u32,
    /// Somebody follows queries.
    pub(super) traced: bool,
    /// Somebody watches how groups end.
    pub(super) watched: bool,
    /// State of the only randomness: when to probe.
    random: u64,
    /// Events since the last check of the whole state.
    #[cfg(debug_assertions)]
    pub(super) unchecked: usize,
    /// Of the event at hand.
    pub(super) now: Time,
    /// What the event at hand leads to.
    pub(super) out: Actions,
}

/// How a pool is doing, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolStatus {
    /// Queries that wait for an instance and were never tried.
    pub queued: u32,
    /// Queries without an answer.
    pub unanswered: u32,
    /// Jobs that run.
    pub running: u32,
    /// Instances that take the deployed model's jobs: neither draining nor ejected.
    pub usable_instances: u32,
    /// What its stand-in costs, as far as is known.
    pub stand_in_cost: Option<Cost>,
    /// Share of the latest predictions that their stand-ins agreed with.
    pub agreement: Option<f64>,
    /// That is below the floor: clients are given no stand-in's answer.
    pub withheld: bool,
    /// What happened so far.
    pub counters: Counters,
}

/// What a dispatcher knows.
#[allow(missing_docs)] // the names say it
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub queries: usize,
    pub jobs: usize,
    pub groups: usize,
    pub instances: usize,
    pub pools: usize,
}

impl Dispatcher {
    /// A dispatcher without instances. The same seed and events lead to the same actions.
    pub fn new(settings: Settings, seed: u64) -> Self {
        let mut book = Book::default();
        settings.shares.iter().for_each(|(share, terms)| book.promise(&Payer::Share(*share), *terms));
        Self {
            settings,
            queries: Arena::new(),
            query_names: Names::new(),
            jobs: Arena::new(),
            groups: Arena::new(),
            instances: Arena::new(),
            instance_names: Names::new(),
            pools: Arena::new(),
            pool_names: Names::new(),
            timers: Timers::new(),
            shelf: Shelf::default(),
            givers: 0,
            crowded: 0,
            abroad: 0,
            asking: Vec::new(),
            wake: None,
            behind: Duration::ZERO,
            book,
            for_reserved: false,
            met: None,
            noted: 0,
            traced: false,
            watched: false,
            random: seed,
            #[cfg(debug_assertions)]
            unchecked: 0,
            now: Time::ZERO,
            out: Actions::new(),
        }
    }

    /// Reacts to an event by adding to `actions`. Time never goes back: an earlier `now` counts as the last one.
    pub fn on_event(&mut self, now: Time, event: Event, actions: &mut Actions) {
        self.now = self.now.max(now);
        #[cfg(test)]
        self.panics_as_planted(&event);
        self.out = mem::take(actions);
        self.behind = Duration::ZERO;
        if let Some(at) = self.wake.filter(|at| *at <= self.now) {
            self.behind = self.now.since(at);
            self.wake = None;
            self.timers.look_again();
            self.fire_timers();
        }
        match event {
            Event::QueryArrived(query) => self.arrived(query),
            Event::QueryCancelled(id) => self.cancelled(id),
            Event::JobCompleted(id) => self.completed(Key::from(id)),
            Event::JobFailed(id, failure) => self.failed(Key::from(id), failure),
            Event::InstanceJoined(id, spec) => self.joined(id, spec),
            Event::TokensOffered(id) => self.tokens_offered(id),
            Event::TokenGranted(id, grant) => self.granted(id, grant),
            Event::TokenRecalled(id, token) => self.recalled(id, token),
            Event::TokensShared(id, alone) => self.tokens_shared(id, alone),
            Event::TokensEnded(id) => self.tokens_ended(id),
            Event::HeldElsewhere(id, elsewhere) => self.held_elsewhere(id, elsewhere),
            Event::InstanceDraining(id) => self.draining(id),
            Event::InstanceLeft(id) => self.left(id),
            Event::ProbeAnswered(id, pool, works) => self.probe_answered(id, pool, works),
            Event::SettingsChanged { pool, settings, in_force } => {
                self.settings_changed(pool, *settings, *in_force);
            }
            Event::VersionAdded { pool, predecessor } => self.version_added(pool, predecessor),
            Event::PoolRemoved(id) => self.pool_removed(id),
            Event::GroupEncoded(id) => self.encoded(Key::from(id)),
            Event::GroupFailed(id) => self.not_encoded(Key::from(id)),
            Event::SlotDecoded { group, query, confidence } => {
                self.decoded(group, query, Reconstruction::Made { confidence });
            }
            Event::SlotFailed { group, query } => self.decoded(group, query, Reconstruction::Failed),
            Event::Compared(id, verdicts) => self.compared(id, &verdicts),
            Event::Judged(query, output, judgement) => self.judged(query, output, judgement),
            Event::Checked(pair, agrees) => self.checked(pair, agrees),
            Event::StandInCost(pool, cost) => self.cost_told(pool, cost),
            Event::TimerFired => {}
        }
        if self.timers.new_is_due(self.now) {
            self.fire_timers();
        }
        if !self.asking.is_empty() {
            self.reserve();
        }
        if self.timers.worth_a_look(self.wake) {
            self.ask_for_wake();
        }
        *actions = mem::take(&mut self.out);
        #[cfg(debug_assertions)]
        self.check_now_and_then();
    }

    /// A fault for the tests of replays.
    #[cfg(test)]
    fn panics_as_planted(&self, event: &Event) {
        let planted = super::replay::PLANTED.get().is_some_and(|jobs| self.jobs.len() == jobs);
        assert!(
            !(planted && matches!(event, Event::QueryArrived(_))),
            "planted: at {:?} by {event:?}",
            self.now
        );
    }

    /// From now on every step of a query is told, or no more.
    pub fn follow_queries(&mut self, traced: bool) {
        self.traced = traced;
    }

    /// How a pool is doing; `None` if there is no such pool.
    pub fn status(&self, pool: PoolId) -> Option<PoolStatus> {
        let pool = self.pools.get(self.pool_names.get(pool)?)?;
        Some(PoolStatus {
            queued: pool.queue.waiting(),
            unanswered: pool.unanswered,
            running: pool.running,
            usable_instances: pool.usable,
            stand_in_cost: pool.stand_ins.is_some().then(|| pool.stand_in_cost()),
            agreement: pool.stand_ins.as_ref().and_then(|stand_ins| stand_ins.agreement()),
            withheld: pool.stand_ins.as_ref().is_some_and(|stand_ins| stand_ins.withheld),
            counters: pool.counters,
        })
    }

    /// What is known now.
    pub fn held(&self) -> Held {
        Held {
            queries: self.queries.len(),
            jobs: self.jobs.len(),
            groups: self.groups.len(),
            instances: self.instances.len(),
            pools: self.pools.len(),
        }
    }

    /// Whether an instance takes work: false if it drains, is ejected (as a whole, or with every model), or is unknown.
    pub fn in_service(&self, instance: InstanceId) -> bool {
        let works = |serves: &Serves| serves.health.in_service();
        let any = |instance: &&Instance| instance.serves.is_empty() || instance.serves.iter().any(works);
        self.instance(instance).filter(|instance| instance.usable()).filter(any).is_some()
    }

    /// Whether an instance takes work of a pool.
    pub fn takes(&self, instance: InstanceId, pool: PoolId) -> bool {
        let Some(pool) = self.pool_names.get(pool) else { return false };
        let usable = self.instance(instance).filter(|instance| instance.usable());
        usable.and_then(|instance| instance.serves(pool)).is_some_and(|serves| serves.health.in_service())
    }

    pub(super) fn instance(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(self.instance_names.get(id)?)
    }

    /// Tells a step of a query, if somebody follows.
    pub(super) fn trace(&mut self, key: Key<Query>, step: Step) {
        if self.traced
            && let Some(query) = self.queries.get(key)
        {
            self.out.push(Action::Trace(query.id, step));
        }
    }

    fn fire_timers(&mut self) {
        while let Some(timer) = self.timers.due(self.now) {
            match timer {
                Timer::Deadline(query) => self.expired(query),
                Timer::Late(job) => self.late(job),
                Timer::StillLate(job) => self.still_late(job),
                Timer::Batch(pool) => self.batch_is_old(pool),
                Timer::NoInstance(pool) => self.nobody_came(pool),
                Timer::Age(group) => self.group_is_old(group),
                Timer::Watch(group) => self.unwatch(group),
                Timer::Overdue(query) => self.overdue(query),
                Timer::Grace(query) => self.grace_is_over(query),
                Timer::Probe(instance) => self.probe_due(instance),
                Timer::Warm(instance) => self.warmed_up(instance),
                Timer::Lease(instance) => self.lease_is_over(instance),
                Timer::Widen(pool) => self.widen(pool),
                Timer::Neighbours(pool) => self.neighbours_or_not(pool),
                Timer::Elsewhere(pool) => self.nowhere_else(pool),
                Timer::Silence(instance) => self.nothing_heard(instance),
            }
        }
    }

    /// An earlier wake than the one asked for replaces it. A later one can wait until that one came: what it was for may
    /// be gone, and a spurious wake costs less than taking back one per answered query.
    fn ask_for_wake(&mut self) {
        let (queries, jobs, pools) = (&self.queries, &self.jobs, &self.pools);
        let (groups, instances) = (&self.groups, &self.instances);
        let earliest = self.timers.earliest(|timer| match timer {
            Timer::Deadline(query) | Timer::Grace(query) | Timer::Overdue(query) => queries.contains(query),
            Timer::Age(group) | Timer::Watch(group) => groups.contains(group),
            Timer::Late(job) | Timer::StillLate(job) => jobs.contains(job),
            Timer::Batch(pool) | Timer::NoInstance(pool) => pools.contains(pool),
            Timer::Elsewhere(pool) | Timer::Widen(pool) | Timer::Neighbours(pool) => pools.contains(pool),
            Timer::Probe(instance) | Timer::Warm(instance) => instances.contains(instance),
            Timer::Lease(instance) | Timer::Silence(instance) => instances.contains(instance),
        });
        let Some(at) = earliest else { return };
        if self.wake.is_none_or(|asked| at < asked) {
            self.wake = Some(at);
            self.out.push(Action::WakeAt(at));
        }
    }

    /// A number in 0..1 (SplitMix64).
    pub(super) fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The pool of this name, set up if there is none yet: provisionally, until an instance or settings name it too.
    pub(super) fn pool(&mut self, id: PoolId) -> Key<Pool> {
        if let Some(key) = self.pool_names.get(id) {
            return key;
        }
        let settings = self.settings.pool(id).clone();
        self.promise_own(id, &settings);
        let key = self.pools.insert(Pool::new(id, settings, self.now));
        self.pool_names.insert(id, key);
        key
    }

    /// A new version of a model starts with the latest answers of the version before it.
    fn version_added(&mut self, id: PoolId, predecessor: PoolId) {
        let Some(before) = self.pool_names.get(predecessor).and_then(|key| self.pools.get(key)) else {
            return;
        };
        if let Some(answered) = before.answered() {
            let pool = self.pool(id);
            self.pools[pool].inherit(answered);
        }
    }

    fn promise_own(&mut self, id: PoolId, settings: &PoolSettings) {
        let terms = Terms { weight: settings.weight.get().into(), reserved: 0 };
        self.book.promise(&Payer::Model(id), terms);
    }

    fn settings_changed(&mut self, id: PoolId, settings: PoolSettings, in_force: InForce) {
        self.promise_own(id, &settings);
        self.settings.pools.insert(id, settings.clone());
        let pool = self.pool(id);
        self.pools[pool].provisional = false;
        self.pools[pool].change(settings, in_force);
        self.watch_jobs_in(pool);
        self.recount(pool);
        self.feed(pool);
    }
}
