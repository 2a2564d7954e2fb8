//! Blame for failures and wrong answers: query or instance.

use std::time::Duration;

use crate::api::PolicyKind;
use crate::measure::doubt::Test;
use crate::rules::affordable::usable_without;
use crate::rules::lateness::{HANGS, patience};
use crate::state::State;
use crate::state::instance::Serves;
use crate::state::job::Job;
use crate::state::keys::{InstanceKey, PoolKey};
use crate::state::pool::Pool;
use crate::state::query::Query;
use crate::turn::Turn;

/// Failures of a query's model whose instances are kept.
pub(crate) const FIRST_FAILURES: usize = 2;

/// Whether a query of a job failed at another instance before. Then this failure does not count against the
/// instance.
pub(crate) fn failed_elsewhere(state: &State, job: &Job) -> bool {
    let elsewhere = |query: &Query| query.failed_at.iter().any(|at| *at != job.instance);
    job.rows.iter().any(|query| state.queries.get(*query).is_some_and(elsewhere))
}

/// Whether a query of a job failed before, at any instance.
pub(crate) fn failed_before(state: &State, job: &Job) -> bool {
    let before = |query: &Query| !query.failed_at.is_empty();
    job.rows.iter().any(|query| state.queries.get(*query).is_some_and(before))
}

/// Whether another instance of a pool responds, so that a failed query may wait for it. A hung instance counts as
/// usable until it is ejected, and some policies never eject it.
pub(crate) fn another_responds(state: &State, turn: &Turn, key: InstanceKey, pool: PoolKey) -> bool {
    if usable_without(state, key, pool) == 0 {
        return false;
    }
    let longest = patience(state.pools.at(pool)).saturating_mul(HANGS);
    state.instances.keys().into_iter().any(|other| {
        let instance = state.instances.at(other);
        let hangs = !instance.jobs.is_empty() && turn.now.since(instance.heard) > longest;
        let takes = instance.usable() && instance.serves(pool).is_some_and(Serves::takes_queries);
        other != key && takes && !hangs
    })
}

/// The test for wrong answers, and whether suspects are ejected.
pub(crate) fn doubts(pool: &Pool) -> (Test, bool) {
    if pool.in_force.policy == PolicyKind::StandIn {
        let settings = &pool.settings.stand_in.agreement;
        let (significance, wrong_share) = (settings.significance.get(), settings.wrong_share.get());
        return (Test { significance, wrong_share, min_samples: settings.min_samples.get() }, settings.eject);
    }
    let settings = &pool.settings.coding.detection;
    let (significance, wrong_share) = (settings.significance.get(), settings.wrong_share.get());
    (Test { significance, wrong_share, min_samples: settings.min_samples.get() }, settings.eject)
}

/// The quarantine of an instance with wrong answers.
pub(crate) fn quarantine(pool: &Pool) -> Duration {
    match pool.in_force.policy {
        PolicyKind::StandIn => pool.settings.stand_in.agreement.quarantine,
        _ => pool.settings.coding.detection.quarantine,
    }
}
