//! Other work than its own jobs that may still answer a query: a stand-in, a backup, or a parity of its group.
//!
//! A query without a further attempt, or without an instance, is left to such work while it runs. Work that waits for an
//! instance does not count: it may never start, and an early error is better than a late one.

use smallvec::SmallVec;

use crate::api::Role;
use crate::rules::stand_in::gives_stand_ins;
use crate::state::State;
use crate::state::group::{Decoding, Stage};
use crate::state::job::Job;
use crate::state::keys::QueryKey;
use crate::state::query::{Query, StandInState};

/// Whether other work that runs may answer a query.
pub(crate) fn other_work_runs(state: &State, key: QueryKey) -> bool {
    let Some(query) = state.queries.get(key) else { return false };
    let gives = || gives_stand_ins(state.pools.at(query.pool), query.payer, query.accept);
    redundancy_runs(state, query) || matches!(query.stand_in, StandInState::Runs(_)) && gives()
}

/// Whether a backup or a parity that runs, or a decoder, may answer a query.
pub(crate) fn redundancy_runs(state: &State, query: &Query) -> bool {
    let backup = query.backup.and_then(|backup| state.jobs.get(backup));
    backup.is_some_and(|job| !job.ended && !job.dropped)
        || is_decoded(state, query)
        || may_be_recovered(state, query)
}

/// Whether the driver decodes a query's prediction.
pub(crate) fn is_decoded(state: &State, query: &Query) -> bool {
    let Some(place) = query.place else { return false };
    state.groups.get(place.group).is_some_and(|group| group.member_at(place).decoding == Decoding::Asked)
}

/// Whether a query's prediction can be recovered once the running jobs of its group have ended.
fn may_be_recovered(state: &State, query: &Query) -> bool {
    let Some(place) = query.place else { return false };
    let Some(group) = state.groups.get(place.group).filter(|group| group.stage == Stage::Coded) else {
        return false;
    };
    if !group.member_at(place).wants_help() {
        return false;
    }
    let jobs = group.jobs.iter().filter_map(|job| state.jobs.get(*job));
    let jobs: SmallVec<[&Job; 4]> = jobs.filter(|job| !job.dropped).collect();
    let parity = |index| jobs.iter().any(|job| job.role == Role::Parity(place.group.id(), index));
    let predicts = |query| jobs.iter().any(|job| job.rows.contains(&query));
    group.recoverable_with(place, parity, predicts)
}
