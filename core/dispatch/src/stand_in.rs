//! Stand-ins find an instance: at once where one is idle, and before everything else once their query is late.
//!
//! A job's rows are gathered when an instance takes it, oldest first, never before: until then a query may be answered, or
//! become late. An instance never stands in for a query that it holds itself.

use std::collections::VecDeque;
use std::time::Duration;

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra::{Class, Extra, Purpose};
use super::feed::Start;
use super::instance::Instance;
use super::job::Job;
use super::pool::Pool;
use super::query::{Aid, Keys, Query};
use super::site::{Apart, farthest};
use super::stand_ins::{Outlook, StandInLine};
use super::time::times;
use super::timers::Timer;
use super::tokens::Tokens;
use super::{Accept, Answer, Cost, PolicyKind, PoolId, Reject, Role, Urgency};

/// How many queries are looked at for those that an instance may stand in for.
const LOOK_AT: usize = 16;

/// Stand-ins' times that a query which cannot be in time any more still waits for an instance, when all approximations that
/// are allowed were given.
const PATIENCE: f64 = 5.0;

impl Dispatcher {
    /// A query arrived: it will be late.
    pub(super) fn will_be_late(&mut self, pool_key: Key<Pool>, key: Key<Query>) {
        let pool = &self.pools[pool_key];
        if let Some(after) = pool.late_while_waiting()
            && self.queries[key].wants_stand_in(pool)
        {
            self.timers.set(self.now + after, Timer::Overdue(key));
        }
    }

    /// Queries were started: from now on an idle instance may stand in.
    pub(super) fn note_started(&mut self, pool_key: Key<Pool>, job: Key<Job>) {
        let pool = &mut self.pools[pool_key];
        if pool.in_force.policy != PolicyKind::StandIn || !pool.settings.stand_in.spare {
            return;
        }
        let Some(mut stand_ins) = pool.stand_ins.take() else { return };
        let pool = &self.pools[pool_key];
        let was_slow = self.instances[self.jobs[job].instance].health.was_slow();
        let too_long = pool.late_for_stand_in().zip(pool.usual_service());
        let too_long = too_long.map(|(late, usual)| late.saturating_sub(usual));
        for key in &self.jobs[job].rows {
            let query = &self.queries[*key];
            if query.wants_stand_in(pool) {
                let waited = self.now.since(query.arrived);
                let outlook = match too_long {
                    _ if was_slow => Outlook::Doubtful,
                    Some(too_long) if waited > too_long => Outlook::Late,
                    _ => Outlook::Good,
                };
                stand_ins.lacks(*key, outlook, |query| self.queries.contains(query), pool.unanswered);
            }
        }
        self.pools[pool_key].stand_ins = Some(stand_ins);
    }

    /// A query is late: its stand-in goes before everything else, unless there is one.
    pub(super) fn overdue(&mut self, key: Key<Query>) {
        let Some(query) = self.queries.get(key) else { return };
        let (pool_key, pool) = (query.pool, &mut self.pools[query.pool]);
        if !pool.settings.stand_in.late || !query.wants_stand_in(pool) {
            return;
        }
        // It is late later once it runs, and as approximate answers near their bound: made now, its answer would only be
        // held back.
        let due = if query.queued { pool.late_while_waiting() } else { pool.late_for_stand_in() };
        let due = due.map(|after| query.arrived + after);
        if let Some(due) = due.filter(|due| *due > self.now) {
            self.timers.set(due, Timer::Overdue(key));
            return;
        }
        let after = self.now.since(query.arrived);
        if let Some(stand_ins) = &mut pool.stand_ins {
            stand_ins.late.push_back(key);
            self.note_late(key, after);
            self.seek(pool_key);
            self.feed_stand_ins(pool_key, StandInLine::Late);
        }
    }

    /// Gives a pool's stand-ins to whoever has room for them.
    pub(super) fn feed_stand_ins(&mut self, pool: Key<Pool>, line: StandInLine) {
        while !self.pools[pool].idle.is_empty() && self.may_stand_in(pool, line) {
            let Some(first) = self.first_without(pool, line) else { return };
            // By chance: in turns with queries an instance would always stand in for the same other one, and comparing the two
            // would not tell who is wrong.
            let chance = self.random();
            let idle = &self.pools[pool].idle;
            let others = self.sites_of_query(first);
            let suits = |index: usize| {
                self.instances.key_at(index).is_some_and(|key| self.may_stand_in_for(pool, key, first, line))
            };
            // One that was slow may well be slow again, and what stands beside the one that holds the query slow with it.
            let well = |index: usize, wish: Apart| {
                let instance = self.instances.key_at(index).and_then(|key| self.instances.get(key));
                instance.is_some_and(|instance| {
                    !instance.health.was_slow() && instance.site.apart_from_all(&others) >= wish
                })
            };
            let chosen =
                farthest(&others, |wish| idle.any(chance, |index| well(index, wish) && suits(index)))
                    .or_else(|| idle.any(chance, suits));
            let chosen = chosen.and_then(|index| self.instances.key_at(index));
            let Some(instance) = chosen else { return };
            if !self.stand_in(pool, instance, line) {
                return;
            }
        }
    }

    /// Gives an instance a stand-in job, if there is one that it may take.
    pub(super) fn take_stand_in(&mut self, instance: Key<Instance>, line: StandInLine) -> bool {
        for index in 0..self.instances[instance].serves.len() {
            let pool = self.instances[instance].serves[index].pool;
            if !self.may_stand_in(pool, line) {
                continue;
            }
            let Some(first) = self.first_without(pool, line) else { continue };
            if self.may_stand_in_for(pool, instance, first, line) && self.stand_in(pool, instance, line) {
                return true;
            }
        }
        false
    }

    /// What a worker measured.
    pub(super) fn cost_told(&mut self, id: PoolId, cost: Cost) {
        let pool = self.pool(id);
        let pool = &mut self.pools[pool];
        pool.told_cost = Some(cost);
        if let Some(stand_ins) = &mut pool.stand_ins {
            stand_ins.costs.tell(cost);
        }
    }

    /// Whether there are such stand-ins, and room for them as far as the pool goes.
    fn may_stand_in(&mut self, key: Key<Pool>, line: StandInLine) -> bool {
        let pool = &mut self.pools[key];
        let Some(stand_ins) = &mut pool.stand_ins else { return false };
        if stand_ins.waiting(line).is_empty() || !self.leaves_reserved(key) {
            return false;
        }
        let pool = &mut self.pools[key];
        if line == StandInLine::Late {
            return true;
        }
        let busy = pool.busy(self.now);
        let kept = pool.policy.kept_idle(busy, pool.slots, pool.stand_in_cost().of(1));
        // What is likely late is worth the last instance.
        kept.is_some_and(|kept| pool.idle.more_than(if line == StandInLine::Doubtful { 0 } else { kept }))
    }

    /// The first query that wants a stand-in; those before it that want none any more are forgotten.
    fn first_without(&mut self, key: Key<Pool>, line: StandInLine) -> Option<Key<Query>> {
        loop {
            let pool = &mut self.pools[key];
            let stand_ins = pool.stand_ins.as_mut()?;
            let first = *stand_ins.waiting(line).front()?;
            let pool = &self.pools[key];
            if self.queries.get(first).is_some_and(|query| query.wants_stand_in(pool)) {
                return Some(first);
            }
            self.pools[key].stand_ins.as_mut()?.waiting(line).pop_front();
        }
    }

    /// Whether an instance may stand in for a query.
    fn may_stand_in_for(
        &self,
        pool: Key<Pool>,
        instance: Key<Instance>,
        query: Key<Query>,
        line: StandInLine,
    ) -> bool {
        let instance_of = &self.instances[instance];
        // What is spare must not wait at an instance behind anything.
        let idle = instance_of.jobs.is_empty() && instance_of.is_ours();
        let free = line == StandInLine::Late || idle;
        let serves = instance_of.serves(pool).is_some_and(|serves| serves.takes_queries() && serves.stand_in);
        let reserved = instance_of.tokens.as_ref().is_some_and(Tokens::are_reserved);
        free && serves && !reserved && !self.holds(instance, query)
    }

    fn holds(&self, instance: Key<Instance>, query: Key<Query>) -> bool {
        self.queries[query].jobs.iter().any(|job| self.jobs[*job].instance == instance)
    }

    /// Starts a stand-in job on an instance with room for it. False if its work is not paid for.
    fn stand_in(&mut self, key: Key<Pool>, instance: Key<Instance>, line: StandInLine) -> bool {
        let Some(stand_ins) = &mut self.pools[key].stand_ins else { return false };
        let mut waiting = std::mem::take(stand_ins.waiting(line));
        let cost = self.pools[key].stand_in_cost();
        let rows = self.gather(&mut waiting, key, instance, &cost);
        // What still waits for an instance is taken out of the queue: that saves work, and costs none.
        let beside = rows.iter().filter(|query| !self.queries[**query].queued).count();
        let pool = &mut self.pools[key];
        let Some(stand_ins) = &mut pool.stand_ins else { return false };
        *stand_ins.waiting(line) = waiting;
        let count = rows.len() as u64;
        let urgency = line.urgency();
        match urgency {
            Urgency::Spare => pool.counters.stand_ins_spare += count,
            Urgency::Late if beside > 0 && !stand_ins.work.spend_part(cost.of(beside)) => {
                // Those that run are among the early ones since they were started, and may yet find an idle instance; those
                // that wait will be.
                pool.counters.stand_ins_refused += count;
                return false;
            }
            Urgency::Late => pool.counters.stand_ins_late += count,
        }
        if rows.is_empty() {
            return false;
        }
        rows.iter().for_each(|query| self.take_out(*query));
        let class = match urgency {
            Urgency::Late => parm_tokens::Class::Late,
            Urgency::Spare => parm_tokens::Class::Spare,
        };
        self.start(Start { pool: key, instance, role: Role::StandIn(urgency), rows, class, purpose: None });
        true
    }

    /// Queries for a stand-in job on an instance, the first that want one; those that want none any more are forgotten.
    fn gather(
        &self,
        waiting: &mut VecDeque<Key<Query>>,
        pool: Key<Pool>,
        instance: Key<Instance>,
        cost: &Cost,
    ) -> Keys {
        let pool = &self.pools[pool];
        let most = pool.policy.rows_at_once(cost, waiting.len());
        let (mut rows, mut at) = (Keys::new(), 0);
        while rows.len() < most && at < waiting.len().min(LOOK_AT) {
            let next = waiting[at];
            if rows.contains(&next) {
                waiting.remove(at);
                continue;
            }
            let Some(query) = self.queries.get(next).filter(|query| query.wants_stand_in(pool)) else {
                waiting.remove(at);
                continue;
            };
            let mixes = |first: &Key<Query>| {
                let first = &self.queries[*first];
                let plain = first.codable && query.codable;
                plain && first.shape == query.shape && first.payer == query.payer
            };
            if rows.first().is_none_or(mixes) && !self.holds(instance, next) {
                waiting.remove(at);
                rows.push(next);
            } else {
                at += 1;
            }
        }
        rows
    }

    /// A query that waits has a stand-in: it need not wait for an instance of its own as well.
    fn take_out(&mut self, key: Key<Query>) {
        let query = &mut self.queries[key];
        if std::mem::take(&mut query.queued) {
            let (pool, lane) = (query.pool, query.lane());
            self.book.leave(&lane.payer, 1);
            let waits = |other| self.queries.get(other).is_some_and(|query| query.queued);
            self.pools[pool].queue.gone(lane, waits);
        }
    }

    /// A query that was taken out of the queue is not given its stand-in's answer: it goes first.
    pub(super) fn back_to_work(&mut self, key: Key<Query>) {
        let Some(query) = self.queries.get(key) else { return };
        if query.queued || query.extras > 0 || !query.jobs.is_empty() {
            return;
        }
        let pool = query.pool;
        if self.pools[pool].removed {
            self.answer(key, Answer::Rejected(Reject::NoInstance));
            return;
        }
        let rows = Keys::from_slice(&[key]);
        self.add_extra(
            pool,
            Class::Urgent,
            Extra { role: Role::Deployed, rows, avoid: None, purpose: Purpose::Retry },
        );
        if self.pools[pool].usable == 0 {
            self.wait_for_instances(pool);
        }
        self.feed(pool);
    }
}

impl Query {
    /// It may be given a stand-in's answer, and has none so far.
    pub(super) fn wants_stand_in(&self, pool: &Pool) -> bool {
        let settings = &pool.settings;
        pool.in_force.policy == PolicyKind::StandIn
            && self.aid == Aid::None
            && self.aids < settings.max_attempts.get()
            && self.accept != Accept::Exact
            // One that waits is taken out of the queue for it.
            && (!self.queued || pool.gives_stand_ins(self.payer, self.accept))
            // A group reads the outputs of its members' jobs, and says when they go.
            && self.place.is_none()
    }
}

impl Pool {
    /// How long after its arrival a query is late.
    pub(super) fn late_for_stand_in(&self) -> Option<Duration> {
        if self.in_force.policy != PolicyKind::StandIn {
            return None;
        }
        let factor = self.settings.stand_in.late_factor.get() * self.thrift();
        Some(times(self.usual_response()?, factor))
    }

    /// How long after its arrival a query that still waits counts as late, though one that runs would not. With a stand-in
    /// it is answered sooner then than if it ran at once, which is several times the work.
    fn late_while_waiting(&self) -> Option<Duration> {
        let (late, usual) = (self.late_for_stand_in()?, self.usual_service()?);
        let used = self.stand_ins.as_ref().map_or(0.0, |stand_ins| stand_ins.bound.used());
        let patience = times(usual, self.stand_in_cost().of(1) * used * PATIENCE);
        Some(late.min(late.saturating_add(patience).saturating_sub(usual)))
    }

    /// What a query usually takes from its arrival, where it need not wait for others.
    pub(super) fn usual_response(&self) -> Option<Duration> {
        let alone = self.usual_service()? + self.in_force.batch.max_delay;
        Some(alone.min(self.response.reading()?.median))
    }

    /// What a query usually takes on the deployed model.
    pub(super) fn usual_service(&self) -> Option<Duration> {
        Some(self.service.reading()?.median)
    }

    /// What a stand-in costs, as far as is known.
    pub(super) fn stand_in_cost(&self) -> Cost {
        let assumed = self.settings.stand_in.cost.get();
        let known = |costs: &super::cost::Costs| costs.known(self.usual_service(), assumed);
        self.stand_ins.as_ref().map_or(Cost::linear(assumed), |stand_ins| known(&stand_ins.costs))
    }
}
