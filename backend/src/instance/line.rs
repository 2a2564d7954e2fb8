//! The waiting jobs of one share, and its metrics.

use std::collections::BTreeMap;

use parm_shares::Account;

use super::Job;
use crate::metrics::ShareMetrics;

/// The place of a job in its line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Jobs with a grant come first.
    pub(super) needs_grant: bool,
    pub(super) priority: u8,
    /// Its number among all jobs.
    pub(super) number: u64,
}

/// The jobs of one share.
pub(super) struct Line {
    jobs: BTreeMap<Place, Job>,
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

    pub(super) fn push(&mut self, place: Place, job: Job) {
        self.metrics.waiting.inc();
        self.jobs.insert(place, job);
    }

    pub(super) fn first(&self) -> Option<Place> {
        self.jobs.first_key_value().map(|(place, _)| *place)
    }

    pub(super) fn pop(&mut self) -> Option<(Place, Job)> {
        let first = self.jobs.pop_first()?;
        self.metrics.waiting.dec();
        Some(first)
    }

    /// Removes jobs.
    pub(super) fn clear(&mut self, which: impl Fn(&Job) -> bool) -> Vec<(Place, Job)> {
        let dropped: Vec<_> = self.jobs.extract_if(.., |_, job| which(job)).collect();
        self.metrics.waiting.sub(dropped.len() as i64);
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
