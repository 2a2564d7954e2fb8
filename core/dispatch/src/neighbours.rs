//! Instances that other frontends use as well and that give no tokens: what those hold there counts as held.
//!
//! Problem: servers that are not ours (Triton, MLServer) take what comes. Two frontends that each know only of their own jobs
//! send to the same instance while others are idle, and the tail grows with every frontend. Prequal asks servers how many
//! requests they hold; these have no such question (what Triton counts as pending does not hold what runs), and what one's own
//! answers tell is older than the jobs that it is about.
//!
//! Choice: frontends tell each other what they hold; the driver brings it. An instance has room as long as ours and theirs
//! together leave any, so what waits stays here, where it can still go to whoever is free first. What is told is late by a
//! message, so two may still meet; therefore each instance is *home* to one of the frontends, which takes it first, and
//! another takes it where its own are busy: of such the one that its frontend let go of last, as that goes round and comes back
//! to this one after all others. Work that must not be in anybody's way (copies, early stand-ins) counts only homes as idle.
//!
//! Who is busy enough would keep an instance for ever: its own queries are there first whenever one ends. So what has waited for
//! as long as a batch takes goes to whoever has the least, one job for each instance, whatever the others hold there.
//!
//! Rejected: to share instances out (the tail of a third of a pool is much longer than that of a whole one); to ask a neighbour
//! before each job (a round trip for every query, and who answers while it is away?).

use std::cmp::Reverse;
use std::time::Duration;

use super::InstanceId;
use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra::Extra;
use super::instance::Instance;
use super::pool::Pool;
use super::stand_ins::StandIns;
use super::timers::Timer;
use serde::{Deserialize, Serialize};

/// How long work waits for an instance that neighbours keep busy, while nobody knows what a batch takes.
const COLD: Duration = Duration::from_millis(10);

/// And at least: a timer for every run of a model of microseconds would cost more than it brings.
const LEAST: Duration = Duration::from_millis(1);

/// What other frontends have to do with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// Jobs that they hold there.
    pub jobs: u16,
    /// It is ours to use first.
    pub home: bool,
}

impl Default for Elsewhere {
    /// There are no others.
    fn default() -> Self {
        Self { jobs: 0, home: true }
    }
}

impl Elsewhere {
    /// Nobody else is in the way, nor do we get in anybody's.
    pub(super) fn is_idle(self) -> bool {
        self.home && self.jobs == 0
    }
}

impl Instance {
    /// No neighbour is in the way, nor do we get in anybody's. Tokens say it better.
    pub(super) fn is_ours(&self) -> bool {
        self.tokens.is_some() || self.elsewhere.is_idle()
    }

    /// Nothing but what others hold there keeps a job away.
    fn others_fill_it(&self) -> bool {
        self.elsewhere.jobs > 0
            && self.jobs.len() < self.most_held()
            && self.usable()
            && self.tokens.as_ref().is_none_or(|tokens| !tokens.are_needed())
    }
}

impl Dispatcher {
    /// An instance with room for a pool's query. Where ours are busy it is the one that its own frontend let go of last: that one
    /// goes round, as we do, and comes back to it after all others.
    pub(super) fn next_with_room(&mut self, key: Key<Pool>) -> Option<Key<Instance>> {
        let pool = &mut self.pools[key];
        let (longest, idle) = (pool.longest_pause(), &mut pool.idle);
        let index = if idle.more_than(0) {
            idle.next(|_| true)
        } else if self.abroad == 0 {
            // Of two in turn the one that holds less: what it is given waits there for what it holds.
            let instances = &self.instances;
            let mut lively = |index| {
                let instance = instances.key_at(index).map(|key| &instances[key]);
                instance.is_some_and(|instance| instance.is_lively(self.now, longest))
            };
            let (first, second) = (idle.next(&mut lively), idle.next(&mut lively));
            let held =
                |index: &usize| instances.key_at(*index).map_or(usize::MAX, |key| instances[key].jobs.len());
            first.into_iter().chain(second).min_by_key(held)
        } else {
            let instances = &self.instances;
            let lively = |index: &usize| {
                let instance = instances.key_at(*index).map(|key| &instances[key]);
                instance.is_some_and(|instance| instance.is_lively(self.now, longest))
            };
            let since = |index: &usize| {
                let instance = instances.key_at(*index).map(|key| &instances[key]);
                instance.map(|instance| {
                    let held = instance.jobs.len() + usize::from(instance.elsewhere.jobs);
                    // Who warms up comes after those that are idle, and where none is those that hold least come first.
                    let idle = held == 0 && instance.warm_at.is_none();
                    (idle, Reverse(held), instance.elsewhere.home, instance.let_go)
                })
            };
            idle.partial().filter(lively).max_by_key(since)
        };
        Some(self.instances.key_at(index?).expect("only instances that are there have room"))
    }

    /// What others hold at an instance changed.
    pub(super) fn held_elsewhere(&mut self, id: InstanceId, elsewhere: Elsewhere) {
        let Some(key) = self.instance_names.get(id) else { return };
        let before = std::mem::replace(&mut self.instances[key].elsewhere, elsewhere);
        self.crowded = self.crowded + u32::from(elsewhere.jobs > 0) - u32::from(before.jobs > 0);
        self.abroad = self.abroad + u32::from(!elsewhere.home) - u32::from(!before.home);
        if before.jobs > 0 && elsewhere.jobs == 0 {
            self.instances[key].let_go = self.now;
        }
        self.refresh(key);
        self.feed_instance(key);
        // What waits may have begun to when nobody else was here.
        if elsewhere.jobs > 0 {
            self.bear_neighbours_of(key);
        }
    }

    /// Whatever waits for an instance that others hold waits for them no longer than that.
    pub(super) fn bear_neighbours_of(&mut self, key: Key<Instance>) {
        for index in 0..self.instances[key].serves.len() {
            let pool = self.instances[key].serves[index].pool;
            if self.crowded > 0 && self.presses(pool) {
                self.bear_neighbours(pool);
            }
        }
    }

    /// Whether more than so many instances have nothing to do, neighbours' homes among them.
    pub(super) fn more_idle_than(&self, key: Key<Pool>, count: u32) -> bool {
        let idle = &self.pools[key].idle;
        let free = |index: &usize| {
            let instance = self.instances.key_at(*index).map(|key| &self.instances[key]);
            instance.is_some_and(|of| !of.elsewhere.home && of.jobs.is_empty() && of.elsewhere.jobs == 0)
        };
        let abroad = if self.abroad == 0 { 0 } else { idle.partial().filter(free).count() as u32 };
        abroad > count || idle.more_than(count - abroad)
    }

    /// Whether anything of a pool waits that must not wait for ever.
    fn presses(&self, key: Key<Pool>) -> bool {
        let Some(pool) = self.pools.get(key) else { return false };
        let late = |own: &StandIns| own.late.iter().any(|query| self.queries.contains(*query));
        let urgent = |extra: &Extra| extra.rows.iter().any(|query| self.queries.contains(*query));
        pool.queue.waiting() > 0
            || pool.urgent.iter().any(urgent)
            || pool.stand_ins.as_deref().is_some_and(late)
    }

    /// Jobs at instances that give no tokens, where there are any: what neighbours are to know.
    pub fn held_without_tokens(&self) -> impl Iterator<Item = (InstanceId, u16)> {
        let open = |instance: &&Instance| instance.tokens.is_none() && !instance.jobs.is_empty();
        let held = |instance: &Instance| u16::try_from(instance.jobs.len()).unwrap_or(u16::MAX);
        let instances = self.instances.iter().map(|(_, instance)| instance);
        instances.filter(open).map(move |instance| (instance.id, held(instance)))
    }

    /// A pool's work has found no room: it does not wait for neighbours for ever.
    pub(super) fn bear_neighbours(&mut self, key: Key<Pool>) {
        let pool = &mut self.pools[key];
        if self.crowded > 0 && !std::mem::replace(&mut pool.bears_neighbours, true) {
            let patience = pool.service.reading().map_or(COLD, |reading| reading.median.max(LEAST));
            self.timers.set(self.now + patience, Timer::Neighbours(key));
        }
    }

    /// It has waited long enough: what waits goes to those where neighbours hold least, a job each.
    pub(super) fn neighbours_or_not(&mut self, key: Key<Pool>) {
        let Some(pool) = self.pools.get_mut(key) else { return };
        pool.bears_neighbours = false;
        let serves = |instance: &Instance| instance.serves(key).is_some_and(|serves| serves.takes_queries());
        let mut filled: Vec<_> = self
            .instances
            .iter()
            .filter(|(_, instance)| instance.others_fill_it() && serves(instance))
            .map(|(key, instance)| (instance.jobs.len() + usize::from(instance.elsewhere.jobs), key))
            .collect();
        // Frontends whose patience ends together must not all begin with the same.
        if !filled.is_empty() {
            let from = (self.random() * filled.len() as f64) as usize;
            filled.rotate_left(from);
        }
        filled.sort_by_key(|(held, _)| *held);
        for (_, instance) in filled {
            if !self.presses(key) {
                return;
            }
            // One that takes nothing may only be one that does not suit.
            self.take_what_waits(instance);
        }
        if self.presses(key) {
            self.bear_neighbours(key);
        }
    }
}
