//! What an instance made of a job: outputs, a failure, or nothing so far.

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra::{Class, Extra};
use super::health::Reason;
use super::job::Job;
use super::query::Keys;
use super::{Action, Answer, Failure, Reject, Role};

impl Dispatcher {
    pub(super) fn completed(&mut self, key: Key<Job>) {
        let Some(job) = self.vacate(key) else { return };
        for (row, query) in job.rows.iter().enumerate() {
            if self.queries.contains(*query) {
                let answer = answer(job.role, key, row as u32);
                if job.role == Role::Copy {
                    self.pools[job.pool].counters.hedges_won += 1;
                }
                self.answer(*query, answer);
            }
        }
        self.out.push(Action::Release(key.id()));
        let verdict = self.judge(&job);
        if let Some(reason) = verdict {
            self.eject(job.instance, job.pool, reason);
        }
        self.pools[job.pool].running -= 1;
        self.retire(job.pool);
        self.feed_instance(job.instance);
    }

    /// A job failed; its instance may be gone with it.
    pub(super) fn failed(&mut self, key: Key<Job>, failure: Failure) {
        let Some(job) = self.vacate(key) else { return };
        let mut again = Keys::new();
        for query in &job.rows {
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
        if failure == Failure::Instance && !job.dropped && self.blame(&job) {
            self.eject(job.instance, job.pool, Reason::Failing);
        }
        self.retry(&job, failure, again);
        self.pools[job.pool].running -= 1;
        self.retire(job.pool);
        self.feed_instance(job.instance);
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

    /// A job is late: its queries may be worth a copy elsewhere.
    pub(super) fn late(&mut self, key: Key<Job>) {
        let Some(job) = self.jobs.get(key) else { return };
        let pool_key = job.pool;
        let mut rows = job.rows.clone();
        rows.retain(|query| {
            self.queries.get(*query).is_some_and(|query| query.extras == 0 && query.jobs.len() == 1)
        });
        let pool = &mut self.pools[pool_key];
        if rows.is_empty() || pool.usable < 2 || pool.removed {
            return;
        }
        if !pool.hedges.spend() {
            pool.counters.hedges_refused += 1;
            return;
        }
        pool.counters.hedges += 1;
        self.add_extra(pool_key, Class::Urgent, Extra { hedge: true, ..Extra::copy(rows) });
        self.feed_extras(pool_key, Class::Urgent);
    }

    /// Takes a job off its instance. Its pool counts it as running until it is dealt with, so as not to go before.
    fn vacate(&mut self, key: Key<Job>) -> Option<Job> {
        let job = self.jobs.remove(key)?;
        if let Some(instance) = self.instances.get_mut(job.instance) {
            instance.jobs.retain(|held| *held != key);
            self.refresh(job.instance);
        }
        Some(job)
    }

    /// Notes how long a job took, and whether that makes its instance one to eject.
    fn judge(&mut self, job: &Job) -> Option<Reason> {
        let pool = &mut self.pools[job.pool];
        let took = self.now.since(job.started);
        let recent = pool.service.reading();
        pool.service.add(took);
        let settings = &pool.settings.ejection;
        let slow = recent.is_some_and(|recent| took > recent.median.mul_f64(settings.slow_factor));
        self.instances.get_mut(job.instance)?.health.answered(slow, settings)
    }

    /// Notes a failure. Returns whether it makes the instance one to eject.
    fn blame(&mut self, job: &Job) -> bool {
        let settings = &self.pools[job.pool].settings.ejection;
        let instance = self.instances.get_mut(job.instance);
        instance.is_some_and(|instance| instance.health.failed(settings).is_some())
    }
}

fn answer(role: Role, job: Key<Job>, row: u32) -> Answer {
    let job = job.id();
    match role {
        Role::Deployed | Role::Parity(..) => Answer::Exact { job, row },
        Role::Copy => Answer::Hedged { job, row },
        Role::Backup => Answer::Backup { job, row },
    }
}
