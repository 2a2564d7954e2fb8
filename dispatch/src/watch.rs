//! Watches jobs that hold queries, so that no query waits for a hung instance while another one could answer it.
//!
//! Problem: any job can hang: the first job of a query, its copy, the retry of a failed job, a stand-in that was given
//! queries out of the queue. An instance that hangs sends no event, so nothing happens unless a timer was set before.
//!
//! Choice: every job that is the last hope of a query has a timer. When the timer fires, the job's queries get another
//! job, or the timer is set again: the budget may be spent or the pool crowded at that moment, and a copy may fail or
//! hang as well. A query gets another copy only when all jobs that run it are late, and never more jobs than
//! `max_attempts`. When a copy fails, the late job that is left is looked at immediately. A stand-in that took its
//! queries out of the queue is given twice its usual time; then these queries go first on the deployed model.
//! Jobs that wait at an instance behind others have no timer of their own: `ahead` watches the instance.
//!
//! Policies that never hedge set no timer for the first job of a query: they ask for exactly one. They set one when
//! a job failed while another job of the same query ran, because that job is then the only one left.
//!
//! Rejected: one timer for each query (most jobs end in time, and one timer for each job is already a large part of the
//! dispatcher's work); a single look when the job becomes late (a copy that was refused, failed or hung was then
//! never replaced).
//!
//! Cold start: while service times are unknown no job counts as late. The timer is set again at twice the
//! job's age, so a job that started cold is hedged as soon as service times are known.

use std::time::Duration;

use super::Role;
use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra;
use super::instance::Instance;
use super::job::Job;
use super::outcome::{Ask, Avoid};
use super::pool::Pool;
use super::query::{Aid, Query};
use super::time::times;
use super::timers::Timer;

/// The shortest time between two looks at a job.
const LEAST: Duration = Duration::from_millis(1);

/// The longest time between two looks at a late job, unless jobs usually take longer. A crowd ends and a budget fills
/// without an event for the job, and the job's query must not wait next to an idle instance until the next look.
const MOST: Duration = Duration::from_millis(100);

/// A stand-in is late when it takes this many times its expected time.
const TARDY: f64 = 2.0;

/// A job counts as hung after this many times what all but the slowest jobs take. Its copies then may take an
/// instance that is reserved for another share, as retries may.
pub(super) const HANGS: u32 = 4;

impl Dispatcher {
    /// Notes that an instance begins a job now, and sets its timer.
    pub(super) fn begin(&mut self, key: Key<Job>) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        job.began = self.now;
        self.watch_job(key);
    }

    /// Sets the timer of a job that runs, where the policy hedges and none is set.
    pub(super) fn watch_job(&mut self, key: Key<Job>) {
        let Some(job) = self.jobs.get(key) else { return };
        let pool = &self.pools[job.pool];
        let predicts = matches!(job.role, Role::Deployed | Role::Copy);
        if !predicts || job.look_at.is_some() || job.waiting == 0 || !pool.policy.hedges() {
            return;
        }
        match pool.policy.late_after(pool.service.reading()) {
            Some(after) => self.look_at(key, job.began + after, Timer::Late(key)),
            None => {
                let at = job.began + pool.settings.retry_elsewhere.max(LEAST);
                self.look_at(key, at, Timer::StillLate(key));
            }
        }
    }

    /// Sets the timers of an instance's jobs that run by now and have none.
    pub(super) fn watch_jobs_of(&mut self, key: Key<Instance>) {
        let Some(instance) = self.instances.get(key) else { return };
        let held: smallvec::SmallVec<[Key<Job>; 4]> =
            instance.jobs.iter().copied().filter(|job| instance.runs(*job)).collect();
        held.into_iter().for_each(|job| self.watch_job(job));
    }

    /// Sets the timers of a pool's jobs: its policy may hedge from now on.
    pub(super) fn watch_jobs_in(&mut self, pool: Key<Pool>) {
        if !self.pools[pool].policy.hedges() {
            return;
        }
        for key in self.instances.keys() {
            if self.instances[key].serves(pool).is_some() {
                self.watch_jobs_of(key);
                self.watch_silence(key);
            }
        }
    }

    /// Sets the timer of a stand-in job some of whose queries have no other job.
    pub(super) fn watch_stand_in(&mut self, key: Key<Job>) {
        let job = &self.jobs[key];
        let alone = |query: &Query| query.jobs.is_empty() && query.extras == 0;
        if job.rows.iter().any(|query| self.queries.get(*query).is_some_and(alone)) {
            let pool = &self.pools[job.pool];
            let within = pool.stand_in_within(job.rows.len()).unwrap_or(pool.settings.retry_elsewhere);
            // It may wait there behind other jobs.
            let behind = if job.alone { Duration::ZERO } else { self.longest_ahead(job.instance) };
            let at = self.now + within.max(pool.settings.hedge.min_delay) + behind;
            self.look_at(key, at, Timer::StillLate(key));
        }
    }

    /// Looks at a job at this time, unless it is looked at sooner.
    fn look_at(&mut self, key: Key<Job>, at: super::Time, timer: Timer) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        let at = at.max(self.now);
        if job.look_at.is_none_or(|set| at < set) {
            job.look_at = Some(at);
            self.timers.set(at, timer);
        }
    }

    /// Looks at a job again after about the time in which another instance should have become free.
    pub(super) fn look_again(&mut self, key: Key<Job>) {
        let Some(job) = self.jobs.get(key) else { return };
        // The longer it has run, the less likely the next look helps.
        let backoff = (self.now.since(job.began) / 8).clamp(LEAST, MOST);
        let at = self.now + self.pools[job.pool].patience().max(backoff);
        self.look_at(key, at, Timer::StillLate(key));
    }

    /// Whether the timer that fired is the one that the job waits for: it may have been replaced by an earlier one.
    fn is_due(&mut self, key: Key<Job>) -> bool {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(key) else { return false };
        let due = job.look_at.is_some_and(|at| at <= now);
        if due {
            job.look_at = None;
        }
        due
    }

    /// A job is late: those of its queries that no parity will save may be worth a copy elsewhere.
    pub(super) fn late(&mut self, key: Key<Job>) {
        if self.is_due(key) {
            self.became_late(key);
        }
    }

    fn became_late(&mut self, key: Key<Job>) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        job.late = true;
        let (rows, after, instance) = (job.rows.clone(), self.now.since(job.began), job.instance);
        rows.iter().for_each(|query| self.note_late(*query, after));
        self.hedge_job(key, Ask::First, None);
        self.watch_silence(instance);
    }

    /// The timer of a job fired again.
    pub(super) fn still_late(&mut self, key: Key<Job>) {
        if !self.is_due(key) {
            return;
        }
        let job = &self.jobs[key];
        if matches!(job.role, Role::StandIn(_)) {
            let rows = job.rows.clone();
            for query in rows {
                if self.queries.get(query).is_some_and(|of| of.aid == Aid::Runs(key)) {
                    self.back_to_work(query);
                }
            }
            return;
        }
        let pool = &self.pools[job.pool];
        if !job.late && pool.policy.hedges() {
            match pool.policy.late_after(pool.service.reading()) {
                Some(after) if job.began + after <= self.now => self.became_late(key),
                Some(after) => self.look_at(key, job.began + after, Timer::Late(key)),
                None => {
                    let age = self.now.since(job.began).max(pool.settings.retry_elsewhere).max(LEAST);
                    self.look_at(key, self.now + age, Timer::StillLate(key));
                }
            }
            return;
        }
        let pool = job.pool;
        self.jobs[key].late = true;
        self.hedge_job(key, Ask::Again, None);
        // A copy that waits may by now take an instance that was kept from it.
        self.feed_extras(pool, extra::Class::Urgent);
    }

    /// Whether a job will hardly end: it has run for very long, or waits at an instance that does nothing.
    pub(super) fn hangs(&self, key: Key<Job>) -> bool {
        let Some(job) = self.jobs.get(key) else { return true };
        if self.instances.get(job.instance).is_some_and(|instance| instance.silent && !instance.runs(key)) {
            return true;
        }
        let usual = self.pools[job.pool].patience();
        job.late && self.now.since(job.began) > usual.saturating_mul(HANGS)
    }

    /// Asks for copies of a late job's queries, and sets its timer again.
    fn hedge_job(&mut self, key: Key<Job>, ask: Ask, avoid: Option<Avoid>) {
        let Some(job) = self.jobs.get(key).filter(|job| job.waiting > 0) else { return };
        let (pool, mut rows) = (job.pool, job.rows.clone());
        rows.retain(|query| !self.covered(*query));
        if let Some(at) = rows.iter().filter_map(|query| self.stand_in_expected(*query)).max() {
            // The stand-in may be late itself.
            self.look_at(key, at, Timer::StillLate(key));
            rows.retain(|query| self.stand_in_expected(*query).is_none());
        }
        self.hedge(pool, rows, ask, avoid);
        self.look_again(key);
    }

    /// A job failed while others ran its queries: these others are all that the queries have now.
    pub(super) fn watch_what_is_left(&mut self, queries: &[Key<Query>], avoid: Avoid) {
        for query in queries {
            let left = self.queries.get(*query).map(|query| query.jobs.clone()).unwrap_or_default();
            for job in left {
                if self.jobs.get(job).is_some_and(|job| job.late) {
                    self.hedge_job(job, Ask::Again, Some(avoid));
                } else {
                    self.look_again(job);
                }
            }
        }
    }
}

impl Pool {
    /// How long a stand-in job may take before its queries are run otherwise; `None` while times are unknown.
    pub(super) fn stand_in_within(&self, rows: usize) -> Option<Duration> {
        Some(times(self.usual_service()?, TARDY * self.stand_in_cost().of(rows)))
    }
}
