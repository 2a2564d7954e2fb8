//! Jobs that wait for an instance of their own: retries and hedges before the queue, replicas after it.
//!
//! They are kept apart from the queue because not every instance will do: a copy never goes where its query is
//! already held, a retry not where it failed.

use std::collections::VecDeque;

use super::Role;
use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::feed::Start;
use super::instance::Instance;
use super::pool::Pool;
use super::query::Keys;

/// A job that has not found its instance yet.
#[derive(Debug)]
pub(super) struct Extra {
    pub(super) role: Role,
    /// Its queries, answered or not.
    pub(super) rows: Keys,
    /// Where it failed before.
    pub(super) avoid: Option<Key<Instance>>,
    /// It was paid for out of the hedge budget, which gets its token back if the job is never started.
    pub(super) hedge: bool,
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

impl Extra {
    /// The same queries once more.
    pub(super) fn copy(rows: Keys) -> Self {
        Self { role: Role::Copy, rows, avoid: None, hedge: false }
    }
}

impl Dispatcher {
    /// Adds a job that needs an instance of its own.
    pub(super) fn add_extra(&mut self, key: Key<Pool>, class: Class, extra: Extra) {
        if class == Class::Urgent {
            extra.rows.iter().for_each(|query| self.queries[*query].extras += 1);
        }
        self.pools[key].extras(class).push_back(extra);
    }

    /// Gives a pool's extra jobs to whoever has room for them.
    pub(super) fn feed_extras(&mut self, key: Key<Pool>, class: Class) {
        let mut at = 0;
        while at < LOOK_AT && !self.pools[key].idle.is_empty() {
            let Some(extra) = self.wanted(key, class, at) else { break };
            let chosen = self.choose(key, &extra);
            self.settle(key, class, &mut at, extra, chosen);
        }
    }

    /// Gives an instance an extra job, if there is one that it may take.
    pub(super) fn take_extra(&mut self, instance: Key<Instance>, class: Class) -> bool {
        for index in 0..self.instances[instance].serves.len() {
            let serves = self.instances[instance].serves[index];
            let mut at = 0;
            while serves.deployed && at < LOOK_AT {
                let Some(extra) = self.wanted(serves.pool, class, at) else { break };
                let chosen = self.suits(serves.pool, &extra, instance).then_some(instance);
                self.settle(serves.pool, class, &mut at, extra, chosen);
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
            let retry = extra.role == Role::Deployed;
            extra.rows.retain(|query| match self.queries.get_mut(*query) {
                Some(query) if retry && !query.jobs.is_empty() => {
                    query.extras -= 1;
                    false
                }
                found => found.is_some(),
            });
            if !extra.rows.is_empty() {
                return Some(extra);
            }
            if extra.hedge {
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
        self.start(Start { pool, instance, role: extra.role, rows: extra.rows, fresh: false });
    }

    fn choose(&mut self, key: Key<Pool>, extra: &Extra) -> Option<Key<Instance>> {
        let mut idle = std::mem::take(&mut self.pools[key].idle);
        let suits =
            |index| self.instances.key_at(index).is_some_and(|instance| self.suits(key, extra, instance));
        let chosen = idle.next(suits).and_then(|index| self.instances.key_at(index));
        self.pools[key].idle = idle;
        chosen
    }

    /// Whether an instance may take an extra job, room aside.
    fn suits(&self, pool: Key<Pool>, extra: &Extra, instance: Key<Instance>) -> bool {
        let failed_here = extra.avoid == Some(instance) && self.pools[pool].usable > 1;
        let holds = |query: &Key<super::query::Query>| {
            self.queries[*query].jobs.iter().any(|job| self.jobs[*job].instance == instance)
        };
        !failed_here && !extra.rows.iter().any(holds)
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
