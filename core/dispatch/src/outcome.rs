//! What an instance made of a job: outputs, a failure, or nothing so far.

use std::time::Duration;

use smallvec::SmallVec;

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra::{Class, Extra, Purpose};
use super::health::Reason;
use super::instance::{Instance, Serves};
use super::job::Job;
use super::pool::Pool;
use super::query::{Keys, Query};
use super::timers::Timer;
use super::watch::HANGS;
use super::{Action, Answer, EjectionSettings, Failure, Reject, Role, Time};

/// Failures of a query's model whose instances are kept.
const FIRST_FAILURES: usize = 2;

/// A few keys.
type Keyed<T> = SmallVec<[Key<T>; 2]>;

/// The instance where a job failed, and until when its queries go elsewhere.
pub(super) type Avoid = (Key<Instance>, Time);

/// Queries that nobody holds any more.
struct Retry {
    rows: Keys,
    /// One of them spoiled its batch: each is tried alone, and no retry is spent on that.
    spoiled: bool,
    /// One of them was refused.
    refused: bool,
}

/// Whether a copy of a late query was refused before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    First,
    Again,
}

impl Dispatcher {
    pub(super) fn completed(&mut self, key: Key<Job>) {
        let Some(role) = self.jobs.get(key).filter(|job| !job.ended).map(|job| job.role) else { return };
        if role == Role::Backup {
            let (pool, instance) = self.leave_instance(key);
            self.backup_completed(key);
            self.works(instance, pool);
            self.done(pool, instance);
            return;
        }
        let Some(job) = self.vacate(key) else { return };
        if let Role::StandIn(_) = role {
            self.stood_in(key, &job);
            if let Some(reason) = self.judge_stand_in(&job) {
                self.eject(job.instance, job.pool, reason);
            }
            self.done(job.pool, job.instance);
            return;
        }
        match role {
            Role::Parity(_, index) => self.parity_completed(key, &job, index),
            _ => self.predicted(key, &job),
        }
        let verdict = self.judge(&job);
        if let Some(reason) = verdict {
            self.eject(job.instance, job.pool, reason);
        }
        self.done(job.pool, job.instance);
    }

    /// Predictions are in: they answer their queries, and may help others of their group.
    fn predicted(&mut self, key: Key<Job>, job: &Job) {
        let kept = self.note_predictions(key, job);
        // A stand-in's pool reads outputs to compare them.
        let shelved = !kept && self.pools[job.pool].stand_ins.is_some();
        if shelved {
            self.shelf.open(key.id(), job.pool, job.instance);
        }
        self.came_after_all(key, job);
        let group = job.group.filter(|group| self.groups.contains(*group));
        if let Some(group) = group {
            self.groups[group].pending += 1; // it must not release these outputs between two answers
        }
        let mut failed_at = Keyed::<Instance>::new();
        for (row, query) in job.rows.iter().enumerate() {
            let Some(waiting) = self.queries.get(*query) else { continue };
            failed_at.extend(waiting.failed_only_at(job));
            let pool = &mut self.pools[job.pool];
            pool.response.add(self.now.since(waiting.arrived));
            pool.counters.hedges_won += u64::from(job.hedge);
            let (id, row) = (key.id(), row as u32);
            let copy = job.role == Role::Copy;
            self.answer(
                *query,
                if copy { Answer::Hedged { job: id, row } } else { Answer::Exact { job: id, row } },
            );
        }
        self.confirm(job.pool, failed_at);
        if shelved {
            self.let_go(key.id());
        } else if !kept {
            self.out.push(Action::Release(key.id()));
        }
        if let Some(group) = group {
            self.groups[group].pending -= 1;
            self.recover(group);
            self.compare(group);
            self.wrap_up(group);
        }
    }

    /// A job failed; its instance may be gone with it.
    pub(super) fn failed(&mut self, key: Key<Job>, failure: Failure) {
        if self.jobs.get(key).is_none_or(|job| job.ended) {
            return;
        }
        let Some(job) = self.vacate(key) else { return };
        let repeated = failure == Failure::Model && self.failed_elsewhere(&job);
        let broke_before = failure == Failure::Model && self.failed_before(&job);
        let batch = job.rows.len() > 1;
        // Of a batch that breaks twice one query is the likelier reason, even where there is only one instance to try. And a
        // query that breaks its model twice is at fault as far as anybody can know, where nobody else could run it.
        let spoiled = failure == Failure::Query
            || repeated
            || (broke_before && (batch || !self.another_responds(job.instance, job.pool)));
        // What another query did to its batch is no attempt of a query's own: it is tried alone next.
        let own = !(spoiled && batch);
        let (mut again, mut carried, mut left) = (Keys::new(), Keys::new(), Keys::new());
        let tried = match job.role {
            Role::Backup | Role::StandIn(_) => &[],
            _ => job.rows.as_slice(),
        };
        for query in tried {
            let Some(waiting) = self.queries.get_mut(*query) else { continue };
            waiting.jobs.retain(|holder| *holder != key);
            waiting.failures = waiting.failures.saturating_add(u8::from(own));
            let held = !waiting.jobs.is_empty() || waiting.extras > 0;
            if waiting.jobs.is_empty() && waiting.extras > 0 {
                carried.push(*query);
            } else if held {
                left.push(*query);
            }
            let most = self.pools[job.pool].settings.max_attempts.get();
            if failure == Failure::Model && waiting.failed_at.len() < FIRST_FAILURES {
                waiting.failed_at.push(job.instance);
                waiting.failed_in = job.rows.len() as u16;
            }
            // Where a copy still runs there is no verdict yet, but on a request that was refused.
            if spoiled && job.rows.len() == 1 && (failure == Failure::Query || !held) {
                let first = waiting.failed_at.first().copied().filter(|_| failure == Failure::Model);
                let retried = waiting.retried;
                first.into_iter().for_each(|instance| self.forgive(instance, job.pool));
                // Retries that only such queries needed must not be missing where instances fail.
                (0..retried).for_each(|_| self.pools[job.pool].retries.refund());
                self.answer(*query, Answer::Rejected(Reject::BadQuery));
            } else if !held && own && waiting.failures >= most {
                self.answer(*query, Answer::Rejected(Reject::Failed));
            } else if !held {
                again.push(*query);
            }
        }
        self.out.push(Action::Release(key.id()));
        job.twins.iter().for_each(|twin| self.let_go(twin.other.job));
        let predicts = matches!(job.role, Role::Deployed | Role::Copy);
        let verdict = match failure {
            _ if job.dropped => self.gave_up(&job),
            // Successes of stand-ins say nothing of predictions, so neither do their failures: they would add up over hours.
            Failure::Instance if matches!(job.role, Role::StandIn(_)) => None,
            Failure::Instance => self.blame(&job, failure),
            // Once is enough of a query that fails wherever it is tried.
            Failure::Model if predicts && !broke_before => self.blame(&job, failure),
            // A parity's query is nobody's: what the model failed on may be one of those in it.
            Failure::Model | Failure::Query => None,
        };
        if let Some(reason) = verdict {
            self.eject(job.instance, job.pool, reason);
            self.ask(job.instance);
        }
        match job.role {
            Role::Parity(_, index) => self.parity_lost(&job, index),
            Role::StandIn(_) => self.stand_in_failed(key, &job, failure),
            _ => {}
        }
        self.retry(&job, Retry { rows: again, spoiled, refused: failure == Failure::Query });
        if !carried.is_empty() {
            self.carry_elsewhere(&job, &carried);
        }
        self.watch_what_is_left(&left, (job.instance, self.now + self.pools[job.pool].patience()));
        self.done(job.pool, job.instance);
    }

    /// Whether a query of a job failed at another instance before: then the job is no evidence against this one.
    fn failed_elsewhere(&self, job: &Job) -> bool {
        let elsewhere = |query: &Query| query.failed_at.iter().any(|at| *at != job.instance);
        job.rows.iter().any(|query| self.queries.get(*query).is_some_and(elsewhere))
    }

    /// Whether another instance that takes a pool's queries does something, so that a query that fails here may wait for it.
    /// An instance that hangs counts as usable until it is ejected, and some policies never eject it.
    fn another_responds(&self, key: Key<Instance>, pool: Key<Pool>) -> bool {
        if self.usable_without(key, pool) == 0 {
            return false;
        }
        let longest = self.pools[pool].patience().saturating_mul(HANGS);
        self.instances.keys().into_iter().any(|other| {
            let instance = &self.instances[other];
            let hangs = !instance.jobs.is_empty() && self.now.since(instance.heard) > longest;
            let takes = instance.usable() && instance.serves(pool).is_some_and(Serves::takes_queries);
            other != key && takes && !hangs
        })
    }

    /// Whether a query of a job failed before, wherever that was.
    fn failed_before(&self, job: &Job) -> bool {
        let before = |query: &Query| !query.failed_at.is_empty();
        job.rows.iter().any(|query| self.queries.get(*query).is_some_and(before))
    }

    /// Tries a job's queries again, within the budget.
    fn retry(&mut self, job: &Job, retry: Retry) {
        let Retry { rows: again, spoiled, refused } = retry;
        if again.is_empty() {
            return;
        }
        let pool = &mut self.pools[job.pool];
        let refusal = if pool.removed {
            Some(Reject::NoInstance)
        } else if spoiled || pool.retries.spend() {
            pool.counters.retries += 1;
            None
        } else {
            pool.counters.retries_refused += 1;
            Some(Reject::Failed)
        };
        if let Some(reason) = refusal {
            again.into_iter().for_each(|query| self.answer(query, Answer::Rejected(reason)));
            return;
        }
        if spoiled {
            self.give_retries_back(again[0]);
            again.iter().for_each(|query| self.queries[*query].retried = 0);
        } else {
            for query in &again {
                let query = &mut self.queries[*query];
                query.retried = query.retried.saturating_add(1);
            }
        }
        // That a query was refused says nothing of the instance.
        let elsewhere = (!refused).then(|| (job.instance, self.now + self.pools[job.pool].patience()));
        let extra = |rows| Extra { role: Role::Deployed, rows, avoid: elsewhere, purpose: Purpose::Retry };
        if spoiled {
            for query in again {
                self.add_extra(job.pool, Class::Urgent, extra(Keys::from_slice(&[query])));
            }
        } else {
            self.add_extra(job.pool, Class::Urgent, extra(again));
        }
        self.avoid_until(job.pool, elsewhere);
        if self.pools[job.pool].usable == 0 {
            self.wait_for_instances(job.pool);
        }
        self.feed(job.pool);
    }

    /// Gives back the retries that were spent on a query and the rest of its batch, where nothing but its model failed on it. A query
    /// that is cancelled or expires before a verdict must not use up the retries that queries need where instances fail.
    pub(super) fn give_retries_back(&mut self, key: Key<Query>) {
        let Some(query) = self.queries.get(key).filter(|query| query.retried > 0) else { return };
        if query.failed_at.len() < usize::from(query.failures).min(FIRST_FAILURES) {
            return;
        }
        let pool = &mut self.pools[query.pool];
        (0..query.retried).for_each(|_| pool.retries.refund());
        let jobs = query.jobs.iter().filter_map(|job| self.jobs.get(*job)).map(|job| &job.rows);
        let extras = pool.urgent.iter().map(|extra| &extra.rows).filter(|rows| rows.contains(&key));
        let batch: Vec<Key<Query>> = jobs.chain(extras).flatten().copied().collect();
        for key in batch {
            if let Some(query) = self.queries.get_mut(key) {
                query.retried = 0;
            }
        }
    }

    /// Copies that wait are all that some queries of a failed job have left: they are its retries, and go elsewhere as those do.
    fn carry_elsewhere(&mut self, job: &Job, queries: &Keys) {
        let pool = &mut self.pools[job.pool];
        let until = self.now + pool.patience();
        for extra in pool.urgent.iter_mut().filter(|extra| extra.rows.iter().any(|row| queries.contains(row)))
        {
            extra.avoid.get_or_insert((job.instance, until));
        }
        self.timers.set(until, Timer::Elsewhere(job.pool));
        if self.pools[job.pool].usable == 0 {
            self.wait_for_instances(job.pool);
        }
        self.feed(job.pool);
    }

    /// Sends queries to another instance as well, within the budget. A copy that is refused now is requested again while
    /// the query's job runs: the job may hang, and a short crowd must not cost the query its deadline.
    pub(super) fn hedge(&mut self, key: Key<Pool>, mut rows: Keys, ask: Ask, avoid: Option<Avoid>) {
        rows.retain(|query| self.may_be_hedged(*query));
        if rows.is_empty() || self.pools[key].removed {
            return;
        }
        let others = self.usable_beside_holders(key, rows[0]);
        let pool = &mut self.pools[key];
        if others == 0 || pool.crowded() || !pool.hedges.spend() {
            pool.counters.hedges_refused += u64::from(ask == Ask::First && others > 0);
            let holders: Keyed<Job> =
                rows.iter().filter_map(|query| self.queries[*query].jobs.first().copied()).collect();
            holders.into_iter().for_each(|job| self.look_again(job));
            return;
        }
        pool.counters.hedges += 1;
        self.add_extra(key, Class::Urgent, Extra { purpose: Purpose::Hedge, avoid, ..Extra::copy(rows) });
        self.avoid_until(key, avoid);
        self.feed_extras(key, Class::Urgent);
    }

    /// Whether a query may get another copy: one job runs it, or all that run it are late.
    fn may_be_hedged(&self, query: Key<Query>) -> bool {
        let Some(query) = self.queries.get(query).filter(|query| query.extras == 0) else { return false };
        let most = usize::from(self.pools[query.pool].settings.max_attempts.get()).max(2);
        let late = |job: &Key<Job>| self.jobs.get(*job).is_none_or(|job| job.late);
        match query.jobs.len() {
            0 => false,
            1 => true,
            jobs => jobs < most && query.jobs.iter().all(late),
        }
    }

    /// How many instances take a pool's queries now and do not hold this one.
    fn usable_beside_holders(&self, pool: Key<Pool>, query: Key<Query>) -> u32 {
        let takes = |instance: &&Instance| {
            instance.usable() && instance.serves(pool).is_some_and(Serves::takes_queries)
        };
        let jobs = self.queries[query].jobs.iter().filter_map(|job| self.jobs.get(*job));
        let holders = jobs.filter_map(|job| self.instances.get(job.instance)).filter(takes).count();
        self.pools[pool].usable.saturating_sub(holders as u32)
    }

    /// Wakes when an extra job may go to the instance that it avoids.
    fn avoid_until(&mut self, pool: Key<Pool>, avoid: Option<Avoid>) {
        if let Some((_, until)) = avoid {
            self.timers.set(until, Timer::Elsewhere(pool));
        }
    }

    /// Takes a job off its instance, and out of the books. Its pool counts it as running until it is `done`, so as not
    /// to go before.
    fn vacate(&mut self, key: Key<Job>) -> Option<Job> {
        self.jobs.get(key)?;
        self.leave_instance(key);
        self.jobs.remove(key)
    }

    fn leave_instance(&mut self, key: Key<Job>) -> (Key<Pool>, Key<Instance>) {
        let job = &self.jobs[key];
        let (pool, instance_key) = (job.pool, job.instance);
        self.book.end(&job.payer, &self.pools[pool].id, job.charge, self.now.since(job.started));
        if let Some(instance) = self.instances.get_mut(instance_key) {
            let next = instance.let_go(key);
            let was_silent = std::mem::take(&mut instance.silent);
            instance.heard = self.now;
            next.into_iter().for_each(|next| self.begin(next));
            if was_silent {
                // What still waits there was given to others, and they may hang as well.
                self.watch_silence(instance_key);
            }
            self.refresh(instance_key);
        }
        (pool, instance_key)
    }

    /// A job has been dealt with: its instance has room.
    fn done(&mut self, pool: Key<Pool>, instance: Key<Instance>) {
        self.pools[pool].running -= 1;
        self.retire(pool);
        self.feed_instance(instance);
    }

    /// Notes how long a job took, and whether that makes its instance one to eject.
    fn judge(&mut self, job: &Job) -> Option<Reason> {
        let pool = &mut self.pools[job.pool];
        let took = self.now.since(job.began);
        let recent = pool.service.reading();
        if !matches!(job.role, Role::Parity(..)) {
            pool.service.add(took);
        }
        let settings = &pool.settings.ejection;
        let slow = recent.is_some_and(|recent| is_slow(took, recent.median, settings));
        let said = slow && self.is_excused(job);
        let settings = &self.pools[job.pool].settings.ejection;
        let instance = self.instances.get_mut(job.instance)?;
        let verdict = if said { None } else { instance.health.answered(slow, settings) };
        self.note_alone(job, self.now);
        self.works(job.instance, job.pool);
        verdict
    }

    /// A job ended without an answer after nobody waited for it any more. That it took long all the same is as bad as a slow
    /// answer: or clients that give up would feed an instance that hangs for ever.
    fn gave_up(&mut self, job: &Job) -> Option<Reason> {
        let pool = &self.pools[job.pool];
        let settings = &pool.settings.ejection;
        let took = self.now.since(job.began);
        let slow = pool.service.rough_median().is_some_and(|median| is_slow(took, median, settings));
        if !slow || self.is_excused(job) {
            return None;
        }
        let settings = &self.pools[job.pool].settings.ejection;
        self.instances.get_mut(job.instance)?.health.gave_nothing(settings)
    }

    /// Notes a failure of a pool's model, and whether that makes the instance one to eject. That a model fails may be due to
    /// what is asked of it, until another instance has answered that; where nothing is tried twice nobody can tell.
    fn blame(&mut self, job: &Job, failure: Failure) -> Option<Reason> {
        if self.is_excused(job) {
            return None;
        }
        let settings = &self.pools[job.pool].settings;
        let certain = failure == Failure::Instance || settings.max_attempts.get() == 1;
        let instance = self.instances.get_mut(job.instance)?;
        let health = &mut instance.serves.iter_mut().find(|serves| serves.pool == job.pool)?.health;
        if certain { health.failed(&settings.ejection) } else { health.suspect(&settings.ejection) }
    }

    /// An instance did what a pool asked of it: its failures there were not in a row.
    fn works(&mut self, key: Key<Instance>, pool: Key<Pool>) {
        let settings = &self.pools[pool].settings.ejection;
        let serves = self.instances.get_mut(key).map(|instance| &mut instance.serves);
        if let Some(own) = serves.and_then(|serves| serves.iter_mut().find(|serves| serves.pool == pool)) {
            own.health.answered(false, settings);
        }
    }

    /// Queries on which a pool's model failed at these instances were answered elsewhere: the instances are at fault.
    fn confirm(&mut self, pool: Key<Pool>, failed_at: Keyed<Instance>) {
        for key in failed_at {
            let settings = &self.pools[pool].settings.ejection;
            let serves = self.instances.get_mut(key).map(|instance| &mut instance.serves);
            let own = serves.and_then(|serves| serves.iter_mut().find(|serves| serves.pool == pool));
            if let Some(reason) = own.and_then(|own| own.health.confirm(settings)) {
                self.eject(key, pool, reason);
            }
        }
    }

    /// A failure was the query's: it is taken back.
    fn forgive(&mut self, key: Key<Instance>, pool: Key<Pool>) {
        let settings = &self.pools[pool].settings.ejection;
        let Some(instance) = self.instances.get_mut(key) else { return };
        let serves = instance.serves.iter_mut().find(|serves| serves.pool == pool);
        if serves.is_some_and(|serves| serves.health.forgive(settings)) {
            let id = instance.id;
            self.out.push(Action::Readmitted(id));
            self.readmitted(key);
        }
    }
}

fn is_slow(took: Duration, median: Duration, settings: &EjectionSettings) -> bool {
    took.as_secs_f64() > median.as_secs_f64() * settings.slow_factor.get()
}
