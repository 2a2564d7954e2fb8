//! Hooks of a redundancy policy: the [`Policy`] trait and what its implementations share.

use std::time::Duration;

use crate::api::{CodingSettings, Cost, GraceSettings, Usual, times};
use crate::measure::quantile::Reading;

/// The decisions of a policy.
pub(crate) trait Policy: Send {
    /// The redundancy of a batch that is about to run, given the utilisation of the pool by queries.
    fn along(&self, _utilisation: f64) -> Along {
        Along::default()
    }

    /// The age at which a job is late and gets a copy, given the recent service times; `None` for never.
    fn late_after(&self, _recent: Option<Reading>) -> Option<Duration> {
        None
    }

    /// Whether idle instances take turns, however fast they are.
    fn takes_turns(&self) -> bool {
        false
    }

    /// Whether a query may be sent to an instance more than once.
    fn repeats(&self) -> bool {
        true
    }

    /// Whether late jobs are hedged.
    fn hedges(&self) -> bool {
        false
    }

    /// Whether batches are queued ahead at instances of fast models.
    fn gives_ahead(&self) -> bool {
        false
    }

    /// Instances of a pool that are kept for parities or backups.
    fn dedicated(&self, _instances: u32) -> u32 {
        0
    }

    /// Instances that must stay idle in addition to the one on which spare work starts.
    fn headroom(&self, _instances: u32) -> u32 {
        0
    }

    /// Instances that must stay idle in addition to the one on which an early stand-in starts, when queries keep
    /// `busy` slots busy and a stand-in costs this share of a query; `None` if no early stand-in may start.
    fn kept_idle(&self, _busy: f64, _slots: u32, _cost: f64) -> Option<u32> {
        None
    }

    /// Waiting queries per slot up to which late jobs are duplicated. With one per slot each query waits for about
    /// a service time, so jobs are late because of the queue, and duplicates would make it longer.
    fn hedges_beside(&self) -> f64 {
        1.0
    }

    /// The capacity that a slow instance lacks, as a share, when the load of an ejected instance is distributed; 0
    /// to ignore slowness.
    fn lost_to_slowness(&self) -> f64 {
        0.0
    }

    /// Rows of a stand-in job, given the number of waiting queries.
    fn rows_at_once(&self, _cost: &Cost, _waiting: usize) -> usize {
        0
    }

    /// The time after its arrival at which a query may receive an approximate answer, given the recent times from
    /// arrival to prediction.
    fn grace(&self, _recent: Option<Reading>) -> Duration {
        Duration::ZERO
    }
}

/// The redundancy of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Along {
    /// Copies, each on an instance of its own.
    pub(crate) copies: u8,
    /// The size of the coding group that it joins.
    pub(crate) group: Option<u8>,
    /// Parities of the group do not wait for idle instances.
    pub(crate) at_once: bool,
    /// It runs on the backup model as well.
    pub(crate) backup: bool,
}

/// The configured multiple of the usual time.
pub(crate) fn grace(settings: &GraceSettings, recent: Option<Reading>) -> Duration {
    let Some(recent) = recent else { return settings.cold };
    match settings.of {
        Usual::Median => times(recent.median, settings.factor.get()),
        Usual::Tail => times(recent.high, settings.factor.get()),
    }
}

/// One of `k + 1` instances, rounded; none if there is only one instance.
pub(crate) fn one_of_k_plus_one(instances: u32, k: u8) -> u32 {
    let parts = u32::from(k) + 1;
    if instances < 2 { 0 } else { ((instances + parts / 2) / parts).max(1) }
}

/// The configured number, with at least one instance left for queries; otherwise the number of the ParM paper.
pub(crate) fn kept_for_parities(instances: u32, settings: &CodingSettings) -> u32 {
    let paper = || one_of_k_plus_one(instances, settings.k.get());
    settings.parity_instances.map_or_else(paper, |kept| kept.get().min(instances.saturating_sub(1)))
}
