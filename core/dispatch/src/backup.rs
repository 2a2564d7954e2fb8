//! The backup model's answers: kept until the prediction comes or is late.

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra::{Class, Extra, Purpose};
use super::job::Job;
use super::pool::Pool;
use super::query::{Keys, Query};
use super::{Accept, Action, Answer, Role};

impl Dispatcher {
    /// Sends a batch to the backup model as well, for the clients that take its answers.
    pub(super) fn add_backup(&mut self, key: Key<Pool>, mut rows: Keys) {
        rows.retain(|query| self.queries[*query].accept == Accept::Any);
        let pool = &self.pools[key];
        if !rows.is_empty() && pool.spare.len() < pool.settings.spare_limit.get() as usize {
            self.add_extra(
                key,
                Class::Spare,
                Extra { role: Role::Backup, rows, avoid: None, purpose: Purpose::Spare },
            );
        }
    }

    /// The backup model's outputs are in.
    pub(super) fn backup_completed(&mut self, key: Key<Job>) {
        let job = &mut self.jobs[key];
        job.ended = true;
        let rows = job.rows.clone();
        if job.waiting == 0 {
            self.jobs.remove(key);
            self.out.push(Action::Release(key.id()));
        }
        rows.into_iter().for_each(|query| self.answer_from_backup(query));
    }

    /// A query no longer waits for its backup.
    pub(super) fn leave_backup(&mut self, key: Key<Job>) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        job.waiting -= 1;
        if job.waiting > 0 || job.dropped {
            return;
        }
        if job.ended {
            self.jobs.remove(key);
            self.out.push(Action::Release(key.id()));
        } else {
            job.dropped = true;
            self.pools[job.pool].counters.dropped += 1;
            self.out.push(Action::Drop(key.id()));
        }
    }

    /// Answers a query from the backup model if its prediction is late, or sets a timer for when it is.
    pub(super) fn answer_from_backup(&mut self, key: Key<Query>) {
        let Some(query) = self.queries.get(key) else { return };
        let Some((job_key, job)) = query.backup.and_then(|backup| Some((backup, self.jobs.get(backup)?)))
        else {
            return;
        };
        if !job.ended {
            return;
        }
        let pool = &mut self.pools[query.pool];
        let from = query.arrived + pool.policy.grace(pool.response.reading());
        if from > self.now {
            self.hold_back(key, from);
            return;
        }
        let row = job.rows.iter().position(|row| *row == key).unwrap_or_default() as u32;
        pool.counters.backups_served += 1;
        self.answer(key, Answer::Backup { job: job_key.id(), row });
    }
}
