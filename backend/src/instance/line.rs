//! The waiting jobs of one share, and its metrics.

use std::collections::BTreeMap;

use parm_shares::Account;

use super::Job;
use crate::metrics::ShareMetrics;

/// The jobs of one share.
pub(super) struct Line {
    /// Sorted by priority, then by arrival.
    jobs: BTreeMap<(u8, u64), Job>,
    metrics: ShareMetrics,
    /// Seconds that were counted as used, and as entitled.
    counted: (f64, f64),
}

impl Line {
    pub(super) fn new(metrics: ShareMetrics) -> Self {
        Self { jobs: BTreeMap::new(), metrics, counted: (0.0, 0.0) }
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn push(&mut self, number: u64, job: Job) {
        self.metrics.waiting.inc();
        self.jobs.insert((job.priority, number), job);
    }

    /// Priority and number of the next job.
    pub(super) fn first(&self) -> Option<(u8, u64)> {
        self.jobs.first_key_value().map(|(key, _)| *key)
    }

    pub(super) fn pop(&mut self) -> Option<Job> {
        let (_, job) = self.jobs.pop_first()?;
        self.metrics.waiting.dec();
        Some(job)
    }

    /// Removes jobs, and returns their number.
    pub(super) fn clear(&mut self, which: impl Fn(&Job) -> bool, away: fn(Job)) -> usize {
        let dropped = self.jobs.extract_if(.., |_, job| which(job)).map(|(_, job)| away(job)).count();
        self.metrics.waiting.sub(dropped as i64);
        dropped
    }

    /// Jobs that can share a batch with `first`, up to the first that does not fit.
    pub(super) fn mates(&mut self, first: &Job, mut rows: usize) -> Vec<Job> {
        let mates = self.jobs.iter().filter(|(_, job)| first.can_join(job));
        let fitting = mates.map_while(|(&key, job)| {
            rows = rows.checked_sub(job.rows)?;
            Some(key)
        });
        let keys: Vec<_> = fitting.collect();
        self.metrics.waiting.sub(keys.len() as i64);
        keys.into_iter().filter_map(|key| self.jobs.remove(&key)).collect()
    }

    /// Updates the metrics from the share's account.
    pub(super) fn count(&mut self, account: &Account) {
        let (used, entitled) = self.counted;
        self.metrics.used.inc_by((account.used - used).max(0.0));
        self.metrics.entitled.inc_by((account.entitled - entitled).max(0.0));
        self.counted = (account.used, account.entitled);
    }
}
