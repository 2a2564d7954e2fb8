//! Reference counts of job outputs that a query or a comparison may still read.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::api::JobId;
use crate::state::keys::{InstanceKey, PoolKey};
use crate::state::names::Mix;

/// The outputs of ended jobs. Looked up and never iterated in order, so nothing depends on hashing.
#[derive(Default)]
pub(crate) struct Shelf {
    kept: HashMap<JobId, Kept, BuildHasherDefault<Mix>>,
}

/// The origin of outputs, and their reference counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) pool: PoolKey,
    pub(crate) instance: InstanceKey,
    pub(crate) readers: u32,
    /// Readers that are the driver, which compares or judges the outputs.
    pub(crate) lent: u32,
    /// One of its rows has counted as evidence about the instance.
    pub(crate) weighed: bool,
}

impl Shelf {
    /// Keeps the outputs of an ended job, with its caller as the first reader.
    pub(crate) fn open(&mut self, job: JobId, pool: PoolKey, instance: InstanceKey) {
        self.kept.insert(job, Kept { pool, instance, readers: 1, lent: 0, weighed: false });
    }

    pub(crate) fn get(&self, job: JobId) -> Option<Kept> {
        self.kept.get(&job).copied()
    }

    /// Adds a reader. False if the outputs are gone or were never kept.
    pub(crate) fn add_reader(&mut self, job: JobId) -> bool {
        self.kept.get_mut(&job).map(|kept| kept.readers += 1).is_some()
    }

    /// Notes that the driver is one of the readers.
    pub(crate) fn lend(&mut self, job: JobId) {
        if let Some(kept) = self.kept.get_mut(&job) {
            kept.lent += 1;
        }
    }

    /// Notes that the driver has finished reading.
    pub(crate) fn take_back(&mut self, job: JobId) {
        if let Some(kept) = self.kept.get_mut(&job) {
            kept.lent = kept.lent.saturating_sub(1);
        }
    }

    /// Whether no row of a job has counted as evidence so far. Marks the job.
    pub(crate) fn weigh_once(&mut self, job: JobId) -> bool {
        self.kept.get_mut(&job).is_some_and(|kept| !std::mem::replace(&mut kept.weighed, true))
    }

    /// The kept outputs, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobId, &Kept)> {
        self.kept.iter().map(|(job, kept)| (*job, kept))
    }

    /// Removes a reader. True if it was the last, and the outputs are gone.
    pub(crate) fn remove_reader(&mut self, job: JobId) -> bool {
        let Some(kept) = self.kept.get_mut(&job) else { return false };
        kept.readers -= 1;
        kept.readers == 0 && self.kept.remove(&job).is_some()
    }
}
