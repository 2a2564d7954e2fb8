//! Jobs that wait for an instance of their own: retries and hedges before the queue, replicas after it.
//!
//! They are kept apart from the queue because not every instance will do: a copy never goes where its query is
//! already held, a retry not where it failed. But a retry must not wait for ever for instances that hang, beside an idle
//! one: after about the time in which another should have come free it takes whichever is.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::feed::Start;
use super::group::Stage;
use super::instance::Instance;
use super::pool::Pool;
use super::query::{Aid, Keys, Query};
use super::site::farthest;
use super::tokens::Tokens;
use super::{Role, Time};

/// A job that has not found its instance yet.
#[derive(Debug)]
pub(super) struct Extra {
    pub(super) role: Role,
    /// Its queries, answered or not.
    pub(super) rows: Keys,
    /// Where it failed before, and until when it goes elsewhere.
    pub(super) avoid: Option<(Key<Instance>, Time)>,
    pub(super) purpose: Purpose,
}

/// What an extra job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It may help.
    Spare,
    /// Its queries have nobody else.
    Retry,
    /// Its queries are late. It was paid for out of the hedge budget, which gets its token back if the job is never started.
    Hedge,
    /// Its queries were given to an instance ahead of time that does nothing any more.
    Moved,
}

/// Such jobs, oldest first.
pub(super) type Extras = VecDeque<Extra>;

/// Before the queue, or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Urgent,
    Spare,
}

/// How many of them are looked at for one that fits: those before it are held up by instances that hold the same
/// queries, which is rare and short.
const LOOK_AT: usize = 16;

impl Class {
    /// What it is beside the jobs of other frontends.
    fn among_all(self) -> parm_tokens::Class {
        match self {
            Self::Urgent => parm_tokens::Class::Late,
            Self::Spare => parm_tokens::Class::Spare,
        }
    }
}

impl Extra {
    /// It is for the instances that are kept for redundancy, where some are.
    fn redundant(&self) -> bool {
        matches!(self.role, Role::Parity(..) | Role::Backup)
    }

    /// The same queries once more.
    pub(super) fn copy(rows: Keys) -> Self {
        Self { role: Role::Copy, rows, avoid: None, purpose: Purpose::Spare }
    }
}

impl Dispatcher {
    /// Adds a job that needs an instance of its own.
    pub(super) fn add_extra(&mut self, key: Key<Pool>, class: Class, extra: Extra) {
        if class == Class::Urgent {
            extra.rows.iter().for_each(|query| self.queries[*query].extras += 1);
            self.seek(key);
        }
        self.pools[key].extras(class).push_back(extra);
    }

    /// Gives a pool's extra jobs to whoever has room for them.
    pub(super) fn feed_extras(&mut self, key: Key<Pool>, class: Class) {
        let mut at = 0;
        let room = |pool: &mut Pool| match class {
            _ if pool.extras(class).is_empty() => false,
            Class::Spare if !pool.has_headroom() => false,
            _ => !pool.idle.is_empty() || !pool.redundancy_idle.is_empty(),
        };
        while at < LOOK_AT && room(&mut self.pools[key]) {
            let Some(extra) = self.wanted(key, class, at) else { break };
            let leaves = self.leaves_reserved(key);
            let chosen = self.choose(key, &extra, leaves);
            self.settle(key, class, &mut at, extra, chosen);
        }
    }

    /// Drops the extra jobs of a model that was unloaded: no instance can take them.
    pub(super) fn forget_extras(&mut self, key: Key<Pool>) {
        let Some(pool) = self.pools.get_mut(key) else { return };
        pool.spare.clear();
        for extra in std::mem::take(&mut pool.urgent) {
            for query in extra.rows {
                if let Some(query) = self.queries.get_mut(query) {
                    query.extras -= 1;
                }
            }
        }
    }

    /// A retry has waited long enough for another instance.
    pub(super) fn nowhere_else(&mut self, key: Key<Pool>) {
        if self.pools.contains(key) {
            self.feed_extras(key, Class::Urgent);
        }
    }

    /// Gives an instance an extra job, if there is one that it may take.
    pub(super) fn take_extra(&mut self, instance: Key<Instance>, class: Class) -> bool {
        for index in 0..self.instances[instance].serves.len() {
            let of = self.instances[instance].serves[index].pool;
            let mut at = 0;
            let pool = &mut self.pools[of];
            if pool.extras(class).is_empty() || (class == Class::Spare && !pool.has_headroom()) {
                continue;
            }
            while at < LOOK_AT {
                let Some(extra) = self.wanted(of, class, at) else { break };
                let leaves = self.leaves_reserved(of);
                let chosen = self.suits(of, &extra, instance, leaves).then_some(instance);
                self.settle(of, class, &mut at, extra, chosen);
                if chosen.is_some() {
                    return true;
                }
            }
        }
        false
    }

    /// Takes out the extra job at this place, without the queries that were answered meanwhile (and a retry without
    /// those that a replica has taken over); those that are left without any are thrown away on the way.
    fn wanted(&mut self, key: Key<Pool>, class: Class, at: usize) -> Option<Extra> {
        loop {
            let mut extra = self.pools[key].extras(class).remove(at)?;
            let (retry, mut taken_over) = (extra.role == Role::Deployed, Keys::new());
            extra.rows.retain(|key| match self.queries.get_mut(*key) {
                Some(query) if retry && !query.jobs.is_empty() => {
                    query.extras -= 1;
                    taken_over.push(*key);
                    false
                }
                found => found.is_some(),
            });
            let jobs = taken_over.iter().flat_map(|query| self.queries[*query].jobs.clone());
            let jobs: SmallVec<[_; 2]> = jobs.collect();
            jobs.into_iter().for_each(|job| self.look_again(job));
            let wanted = match extra.role {
                Role::Parity(group, _) => {
                    self.groups.get(Key::from(group)).is_some_and(|g| g.stage == Stage::Coded)
                }
                _ => !extra.rows.is_empty(),
            };
            if wanted {
                return Some(extra);
            }
            self.pools[key].counters.parities_unsent += u64::from(matches!(extra.role, Role::Parity(..)));
            if extra.purpose == Purpose::Hedge {
                self.pools[key].hedges.refund();
            }
        }
    }

    /// Starts an extra job that was taken out, or puts it back and goes on to the next.
    fn settle(
        &mut self,
        pool: Key<Pool>,
        class: Class,
        at: &mut usize,
        extra: Extra,
        chosen: Option<Key<Instance>>,
    ) {
        let Some(instance) = chosen else {
            self.pools[pool].extras(class).insert(*at, extra);
            *at += 1;
            return;
        };
        if class == Class::Urgent {
            extra.rows.iter().for_each(|query| self.queries[*query].extras -= 1);
        }
        let Extra { role, rows, purpose, .. } = extra;
        self.start(Start { pool, instance, role, rows, class: class.among_all(), purpose: Some(purpose) });
    }

    /// An instance with room for an extra job, apart from those that hold its queries or the members of its group if there
    /// is one.
    fn choose(&mut self, key: Key<Pool>, extra: &Extra, leaves: bool) -> Option<Key<Instance>> {
        let others = self.sites_of(extra);
        let pool = &mut self.pools[key];
        let idle = if extra.redundant() { &mut pool.redundancy_idle } else { &mut pool.idle };
        let mut idle = std::mem::take(idle);
        let suits = |index, wish| {
            self.instances.key_at(index).is_some_and(|instance| {
                let apart = self.instances[instance].site.apart_from_all(&others);
                apart >= wish && self.suits(key, extra, instance, leaves)
            })
        };
        let chosen = farthest(&others, |wish| idle.next(|index| suits(index, wish)));
        let chosen = chosen.and_then(|index| self.instances.key_at(index));
        let pool = &mut self.pools[key];
        *(if extra.redundant() { &mut pool.redundancy_idle } else { &mut pool.idle }) = idle;
        chosen
    }

    /// Whether the queries of an extra job have another job that may answer them. A retry's have none, nor have those of a
    /// hedge whose other jobs failed while it waited, or hang.
    fn is_redundancy(&self, extra: &Extra) -> bool {
        let forsaken = |query: &Key<Query>| {
            self.queries.get(*query).is_some_and(|of| of.jobs.iter().all(|job| self.hangs(*job)))
        };
        match extra.purpose {
            // Who was moved would not have been where it is but for its model's speed.
            Purpose::Retry | Purpose::Moved => false,
            Purpose::Hedge => !extra.rows.iter().any(forsaken),
            Purpose::Spare => true,
        }
    }

    /// Whether an instance may take an extra job, room aside. Where `leaves` is false its queries' instances are reserved.
    fn suits(&self, pool: Key<Pool>, extra: &Extra, instance: Key<Instance>, leaves: bool) -> bool {
        let of = &self.instances[instance];
        let Some(serves) =
            of.serves(pool).filter(|_| of.is_lively(self.now, self.pools[pool].longest_pause()))
        else {
            return false;
        };
        let reserved = self.instances[instance].tokens.as_ref().map_or(!leaves, Tokens::are_reserved);
        if reserved && serves.takes_queries() && self.is_redundancy(extra) {
            return false;
        }
        let spare = extra.purpose == Purpose::Spare;
        // Where no queries go nobody comes first.
        let of = &self.instances[instance];
        let free = if serves.takes_queries() { of.is_ours() } else { of.elsewhere.jobs == 0 };
        if spare && !free {
            return false;
        }
        match extra.role {
            Role::Parity(group, _) => {
                let group = &self.groups[Key::from(group)];
                serves.takes_redundancy()
                    && serves.parity
                    && !group.places.iter().any(|(place, _)| *place == instance)
            }
            Role::Backup => serves.takes_redundancy() && serves.backup,
            Role::StandIn(_) => serves.takes_queries() && serves.stand_in,
            Role::Deployed | Role::Copy => {
                let avoids = |(at, until)| at == instance && self.now < until;
                let failed_here = extra.avoid.is_some_and(avoids) && self.pools[pool].usable > 1;
                let holds = |query: &Key<Query>| {
                    let query = &self.queries[*query];
                    let aid = if let Aid::Runs(job) = query.aid { Some(job) } else { None };
                    let mut jobs = query.jobs.iter().copied().chain(aid);
                    jobs.any(|job| self.jobs.get(job).is_some_and(|job| job.instance == instance))
                };
                serves.takes_queries() && !failed_here && !extra.rows.iter().any(holds)
            }
        }
    }
}

impl Pool {
    pub(super) fn extras(&mut self, class: Class) -> &mut Extras {
        match class {
            Class::Urgent => &mut self.urgent,
            Class::Spare => &mut self.spare,
        }
    }
}
