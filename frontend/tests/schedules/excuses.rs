//! Conditions on settings under which a promise does not apply.
//!
//! An operator who sets an extreme value accepts that.

use std::time::Duration;

use parm_settings::{PolicyKind, PoolSettings};

/// Promises that are not checked, from the first settings on that excuse them, because their effects on instances last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excuses {
    /// Healthy instances may be out of service, so that queries wait while they are idle.
    pub(crate) health: bool,
    /// Queries may fail with another client's row in their batch, and that row's failure may count against the
    /// instance.
    pub(crate) neighbours: bool,
    /// Queries may be kept after their answers.
    pub(crate) keeps: bool,
}

impl Excuses {
    /// Adds the settings of a model, or of all.
    pub(crate) fn add(&mut self, own: &PoolSettings) {
        self.health |= ejects_the_well(own);
        // Queries of a failed batch are retried alone, and only a second attempt tells a bad row from a broken
        // instance.
        self.neighbours |= own.max_attempts.get() < 2 || own.retry.burst < 10;
        // Queries that wait when `once` comes into force share batches and are not retried.
        self.neighbours |= own.policy == PolicyKind::Once;
        // A group that is not full keeps its queries until this age.
        self.keeps |= own.coding.max_age > Duration::from_secs(10);
    }
}

fn ejects_the_well(own: &PoolSettings) -> bool {
    // A single failure suffices, or an ejected instance is not tried again within the time of a recovery.
    own.ejection.failures.get() < 2 || own.ejection.backoff_min > Duration::from_secs(2)
}
