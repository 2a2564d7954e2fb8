//! A query comes in, waits, and is answered exactly once: here is where it becomes known and where it is forgotten.

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::group::Group;
use super::pool::Pool;
use super::query::{Aid, Keys, Query};
use super::timers::Timer;
use super::{Accept, Action, Answer, Payer, PoolId, QueryId, Reject, Step};

impl Dispatcher {
    pub(super) fn arrived(&mut self, query: super::QuerySpec) {
        if self.query_names.get(query.id).is_some() {
            return; // the driver broke its word: the first of that name is served
        }
        let key = self.pool(query.pool);
        let pool = &mut self.pools[key];
        pool.counters.arrived += 1;
        let payer = query.share.map_or(Payer::Model(pool.id), Payer::Share);
        let priority =
            if query.priority == 0 { pool.settings.default_priority.get() } else { query.priority };
        let full = pool.queue.waiting_of(payer) >= pool.settings.queue_limit.get();
        let waits = |query| self.queries.get(query).is_some_and(|query| query.queued);
        // The last of the share's least urgent queries makes room for a more urgent one.
        let yields = full.then(|| pool.queue.less_urgent(payer, priority, waits)).flatten();
        let refusal = if query.deadline <= self.now {
            Some(Reject::Deadline)
        } else if full && yields.is_none() {
            Some(Reject::QueueFull)
        } else {
            None
        };
        if let Some(reason) = refusal {
            self.out.push(Action::Answer(query.id, Answer::Rejected(reason)));
            self.retire(key);
            return;
        }
        let pool = &mut self.pools[key];
        pool.unanswered += 1;
        let deserted = pool.usable == 0;
        let waiting = self.queries.insert(Query {
            id: query.id,
            pool: key,
            shape: query.shape,
            priority,
            payer,
            arrived: self.now,
            deadline: query.deadline,
            accept: query.accept,
            codable: query.codable,
            queued: true,
            failures: 0,
            retried: 0,
            failed_at: Default::default(),
            failed_in: 0,
            extras: 0,
            place: None,
            backup: None,
            aid: Aid::None,
            aids: 0,
            held_back: false,
            noted_late: false,
            jobs: Default::default(),
        });
        self.query_names.insert(query.id, waiting);
        if let Some(yields) = yields {
            self.without_prediction(yields, Reject::QueueFull);
        }
        self.timers.set(query.deadline, Timer::Deadline(waiting));
        self.will_be_late(key, waiting);
        if self.started_at_once(key, waiting) {
            return;
        }
        let lane = self.queries[waiting].lane();
        self.pools[key].queue.push(lane, waiting, self.now);
        self.book.wait(&payer);
        if deserted {
            self.wait_for_instances(key);
        } else {
            self.feed_queue(key);
        }
        if self.traced && self.queries.get(waiting).is_some_and(|query| query.queued) {
            let before = self.pools.get(key).map_or(0, |pool| pool.queue.waiting().saturating_sub(1));
            self.trace(waiting, Step::Queued(before));
        }
    }

    pub(super) fn cancelled(&mut self, id: QueryId) {
        let Some(key) = self.query_names.get(id) else { return };
        self.give_retries_back(key);
        if let Some(pool) = self.forget(key) {
            self.pools[pool].counters.cancelled += 1;
            self.retire(pool);
        }
    }

    pub(super) fn expired(&mut self, key: Key<Query>) {
        self.give_retries_back(key);
        self.without_prediction(key, Reject::Deadline);
    }

    /// No prediction comes in time: the default answer, or why not.
    pub(super) fn without_prediction(&mut self, key: Key<Query>, why: Reject) {
        let Some(query) = self.queries.get(key) else { return };
        // A client that takes nothing but predictions takes no default either.
        let default = query.accept == Accept::Any && self.pools[query.pool].in_force.default_answer;
        self.answer(key, if default { Answer::Default } else { Answer::Rejected(why) });
    }

    /// Notes in a query's story that it is late, the first time that a rule finds so.
    pub(super) fn note_late(&mut self, key: Key<Query>, after: std::time::Duration) {
        if let Some(query) = self.queries.get_mut(key)
            && !std::mem::replace(&mut query.noted_late, true)
        {
            self.trace(key, Step::Late(after));
        }
    }

    /// Answers a query, unless it has been.
    pub(super) fn answer(&mut self, key: Key<Query>, answer: Answer) {
        let Some(query) = self.queries.get(key) else { return };
        self.out.push(Action::Answer(query.id, answer));
        if let Some(stand_ins) = &mut self.pools[query.pool].stand_ins
            && !matches!(answer, Answer::Rejected(_))
        {
            stand_ins.bound.note(query.payer, query.accept, matches!(answer, Answer::StandIn { .. }));
            self.pair_up(key, &answer);
        }
        if let Some(pool) = self.forget(key) {
            self.retire(pool);
        }
    }

    /// Takes a query out of everything, and returns its pool; jobs that only it waited for are dropped.
    fn forget(&mut self, key: Key<Query>) -> Option<Key<Pool>> {
        let query = self.queries.remove(key)?;
        self.query_names.remove(query.id);
        let pool = &mut self.pools[query.pool];
        pool.unanswered -= 1;
        if query.queued {
            self.book.leave(&query.payer, 1);
            pool.queue.gone(query.lane(), |other| self.queries.get(other).is_some_and(|query| query.queued));
        }
        for holder in &query.jobs {
            let Some(job) = self.jobs.get_mut(*holder) else { continue };
            job.waiting -= 1;
            // A group may still want the prediction; it drops the job when it is over.
            let wanted =
                job.group.and_then(|group| self.groups.get(group)).is_some_and(|g| g.misses(&job.rows));
            if job.waiting == 0 && !job.dropped && !wanted {
                job.dropped = true;
                pool.counters.dropped += 1;
                self.out.push(Action::Drop(holder.id()));
            }
        }
        if let Some(backup) = query.backup {
            self.leave_backup(backup);
        }
        self.leave_stand_in(query.aid);
        if let Some(place) = query.place {
            self.finish_if_useless(place.group);
        }
        Some(query.pool)
    }

    /// Sets the timer after which queries without an instance are refused.
    pub(super) fn wait_for_instances(&mut self, key: Key<Pool>) {
        let pool = &mut self.pools[key];
        if pool.no_instance_timer.is_none() && pool.unanswered > 0 {
            let at = self.now + pool.settings.no_instance_grace;
            pool.no_instance_timer = Some(at);
            self.timers.set(at, Timer::NoInstance(key));
        }
    }

    /// Refuses the queries that have waited for an instance as long as they should.
    pub(super) fn nobody_came(&mut self, key: Key<Pool>) {
        let Some(pool) = self.pools.get_mut(key) else { return };
        pool.no_instance_timer = None;
        let (Some(since), grace) = (pool.deserted_since, pool.settings.no_instance_grace) else { return };
        let mut next = None;
        for query in self.without_instance(key) {
            // A query that was answered just now may be named twice: the queue forgets lazily.
            let Some(waiting) = self.queries.get(query) else { continue };
            let until = waiting.arrived.max(since) + grace;
            if until <= self.now {
                self.answer(query, Answer::Rejected(Reject::NoInstance));
            } else {
                next = Some(next.map_or(until, |first: super::Time| first.min(until)));
            }
        }
        if let (Some(at), Some(pool)) = (next, self.pools.get_mut(key)) {
            pool.no_instance_timer = Some(at);
            self.timers.set(at, Timer::NoInstance(key));
        }
    }

    /// The model is unloaded.
    pub(super) fn pool_removed(&mut self, id: PoolId) {
        let Some(key) = self.pool_names.remove(id) else { return };
        self.settings.pools.remove(&id);
        for instance in self.instances.keys() {
            self.instances[instance].serves.retain(|serves| serves.pool != key);
        }
        let waiting = self.without_instance(key);
        let pool = &mut self.pools[key];
        pool.removed = true;
        (pool.idle, pool.redundancy_idle) = Default::default();
        // Nobody can run its parities any more, and no group may outlive its pool.
        let of_pool = |(id, group): (_, &Group)| (group.pool == key).then_some(id);
        let groups: Vec<_> = self.groups.iter().filter_map(of_pool).collect();
        groups.into_iter().for_each(|group| self.finish(group));
        for query in waiting {
            self.answer(query, Answer::Rejected(Reject::NoInstance));
        }
        self.forget_extras(key);
        self.retire(key);
    }

    /// Queries of a pool that no instance holds.
    fn without_instance(&self, key: Key<Pool>) -> Keys {
        let pool = &self.pools[key];
        let queued = |query: &Key<Query>| self.queries.get(*query).is_some_and(|query| query.queued);
        let extras = pool.urgent.iter().flat_map(|extra| extra.rows.iter().copied());
        let unheld = |query: &Key<Query>| self.queries.get(*query).is_some_and(|query| query.jobs.is_empty());
        pool.queue.iter().filter(queued).chain(extras.filter(unheld)).collect()
    }

    /// A removed pool goes when nothing refers to it any more, and so does one that only queries ever named.
    #[inline]
    pub(super) fn retire(&mut self, key: Key<Pool>) {
        let goes = |pool: &&Pool| pool.removed || pool.provisional;
        let done = |pool: &&Pool| pool.running == 0 && pool.unanswered == 0;
        let Some(pool) = self.pools.get(key).filter(goes).filter(done) else { return };
        if !pool.removed {
            self.pool_names.remove(pool.id);
        }
        let id = pool.id;
        self.book.close(&Payer::Model(id), &id);
        self.pools.remove(key);
    }
}
