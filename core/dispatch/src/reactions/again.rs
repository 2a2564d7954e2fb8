//! Another job for queries that run: hedges, and queries that their stand-in did not answer or is compared with.

use smallvec::SmallVec;

use crate::api::{Answer, Reject, Role};
use crate::moves::answer::answer;
use crate::moves::line_up::{add_extra, avoid_until};
use crate::moves::room::wait_for_instances;
use crate::moves::watch::look_again;
use crate::placing::extras::place_extras;
use crate::placing::place;
use crate::rules::gain::gain;
use crate::rules::hedging::{may_be_hedged, usable_beside_holders};
use crate::state::State;
use crate::state::extra::{Extra, ExtraLine, Purpose};
use crate::state::keys::{Avoid, JobKey, Keys, PoolKey, QueryKey};
use crate::turn::Turn;

/// Whether this is the first request for a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    First,
    Again,
}

/// Hedges queries within the budget. A refused hedge is requested again while the job runs, because the job may
/// hang, and a short crowd must not cost the query its deadline.
pub(crate) fn hedge(
    state: &mut State,
    turn: &mut Turn,
    key: PoolKey,
    mut rows: Keys,
    ask: Ask,
    avoid: Option<Avoid>,
) {
    rows.retain(|query| may_be_hedged(state, *query));
    if rows.is_empty() || state.pools.at(key).removed {
        return;
    }
    // One of them broke a batch of theirs: each runs alone, so that it cannot fail the others again.
    if rows.len() > 1 && rows.iter().any(|query| state.queries.at(*query).failed_in > 1) {
        rows.into_iter().for_each(|row| hedge(state, turn, key, Keys::from_slice(&[row]), ask, avoid));
        return;
    }
    let others = usable_beside_holders(state, key, rows[0]);
    let gain =
        rows.iter().filter_map(|query| gain(state, turn, *query)).map(|gain| gain.runs).reduce(f64::max);
    let pool = state.pools.at_mut(key);
    if others == 0 || pool.crowded() || !pool.hedges.buy(gain.unwrap_or(f64::INFINITY)) {
        pool.counters.hedges_refused += u64::from(ask == Ask::First && others > 0);
        let holders: SmallVec<[JobKey; 2]> =
            rows.iter().filter_map(|query| state.queries.at(*query).jobs.first().copied()).collect();
        holders.into_iter().for_each(|job| look_again(state, turn, job));
        return;
    }
    add_extra(
        state,
        turn,
        key,
        ExtraLine::Urgent,
        Extra { purpose: Purpose::Hedge, avoid, ..Extra::copy(rows) },
    );
    avoid_until(state, key, avoid);
    place_extras(state, turn, key, ExtraLine::Urgent);
}

/// Runs a query before the stand-ins of others, so that its own is compared with the prediction.
pub(crate) fn compare_with_run(state: &mut State, turn: &mut Turn, key: QueryKey) {
    let pool = state.queries.at(key).pool;
    let rows = Keys::from_slice(&[key]);
    let extra = Extra { role: Role::Deployed, rows, avoid: None, purpose: Purpose::Retry };
    add_extra(state, turn, pool, ExtraLine::Urgent, extra);
    place_extras(state, turn, pool, ExtraLine::Urgent);
}

/// Gives a query first place on the deployed model, because its stand-in took it out of the queue and did not
/// answer.
pub(crate) fn run_on_deployed(state: &mut State, turn: &mut Turn, key: QueryKey) {
    let Some(query) = state.queries.get(key) else { return };
    if query.queued || query.extras > 0 || !query.jobs.is_empty() {
        return;
    }
    let pool = query.pool;
    if state.pools.at(pool).removed {
        answer(state, turn, key, Answer::Rejected(Reject::NoInstance));
        return;
    }
    let rows = Keys::from_slice(&[key]);
    add_extra(
        state,
        turn,
        pool,
        ExtraLine::Urgent,
        Extra { role: Role::Deployed, rows, avoid: None, purpose: Purpose::Retry },
    );
    if state.pools.at(pool).usable == 0 || state.pools.at(pool).outage_since.is_some() {
        wait_for_instances(state, turn, pool);
    }
    place(state, turn, pool);
}
