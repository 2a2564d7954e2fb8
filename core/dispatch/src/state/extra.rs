//! Extra jobs, which wait for an instance of their own: retries, hedges, replicas, parities and backups.
//!
//! Retries and hedges go before the queue, the others after it. They are separate from the queue because not every
//! instance suits: a copy never goes to an instance that holds its query, a retry avoids the instance that failed.
//! But a retry must not wait forever for hung instances next to an idle one. After about the time in which another
//! instance should become free, it takes any.

use std::collections::VecDeque;

use crate::api::{Class, Role, Time};
use crate::state::keys::{InstanceKey, Keys};

/// A job that waits for an instance.
#[derive(Debug)]
pub(crate) struct Extra {
    pub(crate) role: Role,
    /// Its queries, answered or not.
    pub(crate) rows: Keys,
    /// The instance that failed it, and the time until which it avoids that instance.
    pub(crate) avoid: Option<(InstanceKey, Time)>,
    pub(crate) purpose: Purpose,
}

/// The purpose of an extra job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Optional: it may help.
    Spare,
    /// Its queries have no other job.
    Retry,
    /// Its queries are late. The hedge budget paid for it and gets its token back if the job is never started.
    Hedge,
    /// Its queries were queued ahead at an instance that fell silent.
    Moved,
    /// It shows how fast a slow instance is now.
    Explore,
}

/// Extra jobs, oldest first.
pub(crate) type Extras = VecDeque<Extra>;

/// The line of an extra job: before the queue, or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtraLine {
    Urgent,
    Spare,
}

impl ExtraLine {
    /// Its class among the jobs of other frontends.
    pub(crate) fn among_all(self) -> Class {
        match self {
            Self::Urgent => Class::Late,
            Self::Spare => Class::Spare,
        }
    }
}

impl Extra {
    /// Whether it runs on instances that are kept for redundancy.
    pub(crate) fn redundant(&self) -> bool {
        matches!(self.role, Role::Parity(..) | Role::Backup)
    }

    /// A copy of these queries.
    pub(crate) fn copy(rows: Keys) -> Self {
        Self { role: Role::Copy, rows, avoid: None, purpose: Purpose::Spare }
    }
}
