//! Outputs that are kept because somebody may still read them: a query that may be answered with them, or who compares.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::JobId;
use super::arena::Key;
use super::instance::Instance;
use super::names::Mix;
use super::pool::Pool;

/// The outputs of jobs that ended. Looked up, never walked, so no order leaks out of the hashing.
#[derive(Default)]
pub(super) struct Shelf {
    kept: HashMap<JobId, Kept, BuildHasherDefault<Mix>>,
}

/// The instance that made some outputs, and how many may read them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) pool: Key<Pool>,
    pub(super) instance: Key<Instance>,
    pub(super) readers: u32,
    /// How many of them the driver is: it compares or judges the outputs.
    pub(super) lent: u32,
    /// One of its rows has counted as evidence about the instance.
    pub(super) weighed: bool,
}

impl Shelf {
    /// A job ended, and whoever deals with it reads its outputs.
    pub(super) fn open(&mut self, job: JobId, pool: Key<Pool>, instance: Key<Instance>) {
        self.kept.insert(job, Kept { pool, instance, readers: 1, lent: 0, weighed: false });
    }

    pub(super) fn get(&self, job: JobId) -> Option<Kept> {
        self.kept.get(&job).copied()
    }

    /// One more may read them. False if they are gone, or were never kept.
    pub(super) fn hold(&mut self, job: JobId) -> bool {
        self.kept.get_mut(&job).map(|kept| kept.readers += 1).is_some()
    }

    /// One of those that may read them is the driver.
    pub(super) fn lend(&mut self, job: JobId) {
        if let Some(kept) = self.kept.get_mut(&job) {
            kept.lent += 1;
        }
    }

    /// The driver has read them.
    pub(super) fn take_back(&mut self, job: JobId) {
        if let Some(kept) = self.kept.get_mut(&job) {
            kept.lent = kept.lent.saturating_sub(1);
        }
    }

    /// Whether no row of a job has counted as evidence so far; one has from now on.
    pub(super) fn weigh_once(&mut self, job: JobId) -> bool {
        self.kept.get_mut(&job).is_some_and(|kept| !std::mem::replace(&mut kept.weighed, true))
    }

    /// The outputs that are kept, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (JobId, &Kept)> {
        self.kept.iter().map(|(job, kept)| (*job, kept))
    }

    /// One fewer. True if that was the last: then they are gone.
    pub(super) fn let_go(&mut self, job: JobId) -> bool {
        let Some(kept) = self.kept.get_mut(&job) else { return false };
        kept.readers -= 1;
        kept.readers == 0 && self.kept.remove(&job).is_some()
    }
}
