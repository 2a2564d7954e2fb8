//! Conditions on settings under which a promise does not apply.
//!
//! An operator who sets an extreme value accepts that.

use std::time::Duration;

use parm_settings::{PolicyKind, PoolSettings};

/// Promises that are not checked, from the first settings on that excuse them, because their effects on instances last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excuses {
    /// Healthy instances may be out of service.
    pub(crate) health: bool,
    /// Queries may wait while a suitable instance is idle.
    pub(crate) waits: bool,
    /// Hung instances may receive jobs for ever.
    pub(crate) hangs: bool,
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
        self.waits |= lets_wait(own);
        // Where each query is sent once, a probe must not run a client's again. So the query of a client tries a hung
        // instance after each backoff.
        self.hangs |= feeds_the_hung(own) || own.policy == PolicyKind::Once;
        // Queries of a failed batch are retried alone, and only a second attempt tells a bad row from a broken
        // instance.
        self.neighbours |= own.max_attempts.get() < 2 || own.retry.burst < 10;
        // Queries that wait when `once` comes into force share batches and are not retried.
        self.neighbours |= own.policy == PolicyKind::Once;
        // A group that is not full keeps its queries until this age.
        self.keeps |= own.coding.max_age > Duration::from_secs(10)
            || own.coding.detection.max_wait > Duration::from_secs(10);
    }
}

fn ejects_the_well(own: &PoolSettings) -> bool {
    let (ejection, agreement, detection) = (&own.ejection, &own.stand_in.agreement, &own.coding.detection);
    // A single slow answer suffices.
    let hasty = ejection.slow_answers.get() < 2 || ejection.failures.get() < 2;
    // An ejected instance is not probed within the time of a recovery.
    let slow = ejection.backoff_min > Duration::from_secs(2) || ejection.backoff_max > Duration::from_secs(2);
    // Instances are suspected without evidence, and stay ejected for longer than a recovery.
    let suspects = agreement.significance.get() > 0.01
        || agreement.min_samples.get() < 50
        || agreement.wrong_share.get() < 0.3;
    let detects = detection.significance.get() > 0.01
        || detection.min_samples.get() < 50
        || detection.wrong_share.get() < 0.3;
    hasty || slow || (agreement.eject && suspects) || (detection.eject && detects)
}

fn lets_wait(own: &PoolSettings) -> bool {
    // A batch waits for queries that fill it, a retry for another instance.
    own.batch.max_delay > Duration::from_millis(100)
        || own.retry_elsewhere > Duration::from_millis(100)
        || ejects_the_well(own)
}

fn feeds_the_hung(own: &PoolSettings) -> bool {
    let ejection = &own.ejection;
    // No instance may be ejected, or a silent instance is not detected.
    let patient = ejection.slow_answers.get() > 10 || ejection.failures.get() > 10;
    let keeps = ejection.least_in_service.get() > 0.5 || ejection.max_utilisation.get() < 0.5;
    // An immediate probe returns it at once.
    let restless = ejection.backoff_min < Duration::from_millis(100)
        || ejection.backoff_max < Duration::from_millis(100);
    patient || keeps || restless || own.ahead > Duration::from_millis(100)
}
