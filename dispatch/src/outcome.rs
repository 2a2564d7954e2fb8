//! What an instance made of a job: outputs, a failure, or nothing so far.

use std::time::Duration;

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra::{Class, Extra};
use super::health::Reason;
use super::instance::Instance;
use super::job::Job;
use super::pool::Pool;
use super::query::Keys;
use super::timers::Timer;
use super::{Action, Answer, Failure, Reject, Role};

impl Dispatcher {
    pub(super) fn completed(&mut self, key: Key<Job>) {
        let Some(role) = self.jobs.get(key).filter(|job| !job.ended).map(|job| job.role) else { return };
        if role == Role::Backup {
            let job = self.leave_instance(key);
            self.backup_completed(key);
            self.done(job);
            return;
        }
        let Some(job) = self.vacate(key) else { return };
        if let Role::StandIn(_) = role {
            self.stood_in(key, &job);
            if let Some(reason) = self.judge_stand_in(&job) {
                self.eject(job.instance, job.pool, reason);
            }
            self.done((job.pool, job.instance));
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
        self.done((job.pool, job.instance));
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
        for (row, query) in job.rows.iter().enumerate() {
            let Some(waiting) = self.queries.get(*query) else { continue };
            let pool = &mut self.pools[job.pool];
            pool.response.add(self.now.since(waiting.arrived));
            pool.counters.hedges_won += u64::from(job.role == Role::Copy);
            let (id, row) = (key.id(), row as u32);
            let copy = job.role == Role::Copy;
            self.answer(
                *query,
                if copy { Answer::Hedged { job: id, row } } else { Answer::Exact { job: id, row } },
            );
        }
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
        let mut again = Keys::new();
        let tried = match job.role {
            Role::Backup | Role::StandIn(_) => &[],
            _ => job.rows.as_slice(),
        };
        for query in tried {
            let Some(waiting) = self.queries.get_mut(*query) else { continue };
            waiting.jobs.retain(|holder| *holder != key);
            waiting.failures = waiting.failures.saturating_add(1);
            let held = !waiting.jobs.is_empty() || waiting.extras > 0;
            let most = self.pools[job.pool].settings.max_attempts.get();
            if failure == Failure::Query && job.rows.len() == 1 {
                self.answer(*query, Answer::Rejected(Reject::BadQuery));
            } else if !held && waiting.failures >= most {
                self.answer(*query, Answer::Rejected(Reject::Failed));
            } else if !held {
                again.push(*query);
            }
        }
        self.out.push(Action::Release(key.id()));
        job.twins.iter().for_each(|twin| self.let_go(twin.other.job));
        if failure == Failure::Instance && !job.dropped && self.blame(&job) {
            self.eject(job.instance, job.pool, Reason::Failing);
        }
        match job.role {
            Role::Parity(_, index) => self.parity_lost(&job, index),
            Role::StandIn(_) => self.stand_in_failed(key, &job, failure),
            _ => {}
        }
        self.retry(&job, failure, again);
        self.done((job.pool, job.instance));
    }

    /// Tries queries again that nobody holds any more, within the budget.
    fn retry(&mut self, job: &Job, failure: Failure, again: Keys) {
        if again.is_empty() {
            return;
        }
        let pool = &mut self.pools[job.pool];
        let refusal = if pool.removed {
            Some(Reject::NoInstance)
        } else if pool.retries.spend() {
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
        let extra = |rows, avoid| Extra { role: Role::Deployed, rows, avoid, hedge: false };
        match failure {
            Failure::Instance => self.add_extra(job.pool, Class::Urgent, extra(again, Some(job.instance))),
            // One query of the batch spoiled it: alone, the others are fine.
            Failure::Query => again.into_iter().for_each(|query| {
                self.add_extra(job.pool, Class::Urgent, extra(Keys::from_slice(&[query]), None));
            }),
        }
        if self.pools[job.pool].usable == 0 {
            self.wait_for_instances(job.pool);
        }
        self.feed(job.pool);
    }

    /// A job is late: those of its queries that no parity will save may be worth a copy elsewhere.
    pub(super) fn late(&mut self, key: Key<Job>) {
        let Some(job) = self.jobs.get(key) else { return };
        let (pool, mut rows) = (job.pool, job.rows.clone());
        rows.retain(|query| !self.covered(*query));
        if let Some(at) = rows.iter().filter_map(|query| self.stand_in_expected(*query)).max() {
            // Once more when it should be in: it may be late itself.
            self.timers.set(at, Timer::Late(key));
            rows.retain(|query| self.stand_in_expected(*query).is_none());
        }
        self.hedge(pool, rows);
    }

    /// Sends queries that one instance holds to another one as well, within the budget.
    pub(super) fn hedge(&mut self, key: Key<Pool>, mut rows: Keys) {
        rows.retain(|query| {
            self.queries.get(*query).is_some_and(|query| query.extras == 0 && query.jobs.len() == 1)
        });
        let pool = &mut self.pools[key];
        if rows.is_empty() || pool.usable < 2 || pool.removed {
            return;
        }
        if pool.backlogged() || !pool.hedges.spend() {
            pool.counters.hedges_refused += 1;
            return;
        }
        pool.counters.hedges += 1;
        self.add_extra(key, Class::Urgent, Extra { hedge: true, ..Extra::copy(rows) });
        self.feed_extras(key, Class::Urgent);
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
        if let Some(instance) = self.instances.get_mut(instance_key) {
            instance.jobs.retain(|held| *held != key);
            self.refresh(instance_key);
        }
        (pool, instance_key)
    }

    /// A job has been dealt with: its instance has room.
    fn done(&mut self, (pool, instance): (Key<Pool>, Key<Instance>)) {
        self.pools[pool].running -= 1;
        self.retire(pool);
        self.feed_instance(instance);
    }

    /// Notes how long a job took, and whether that makes its instance one to eject.
    fn judge(&mut self, job: &Job) -> Option<Reason> {
        let pool = &mut self.pools[job.pool];
        let took = self.now.since(job.started);
        let recent = pool.service.reading();
        if !matches!(job.role, Role::Parity(..)) {
            pool.service.add(took);
        }
        let settings = &pool.settings.ejection;
        let slow = |median: Duration| took.as_secs_f64() > median.as_secs_f64() * settings.slow_factor;
        let slow = recent.is_some_and(|recent| slow(recent.median));
        self.instances.get_mut(job.instance)?.health.answered(slow, settings)
    }

    /// Notes a failure. Returns whether it makes the instance one to eject.
    fn blame(&mut self, job: &Job) -> bool {
        let settings = &self.pools[job.pool].settings.ejection;
        let instance = self.instances.get_mut(job.instance);
        instance.is_some_and(|instance| instance.health.failed(settings).is_some())
    }
}
