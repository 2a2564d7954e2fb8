//! Load shedding: rejects queries at the head of the queue that would miss their deadline.
//!
//! Problem: with more load than capacity, a queue in order of arrival makes all queries wait until just before
//! their deadline. Each starts with less time than a run takes, so instances are busy and no query is in time. A
//! limit on the queue's length prevents that only if it matches deadlines and service times, which change.
//!
//! Choice: when an instance is free, queries at the head of the queue that would probably be late are rejected, so
//! that the instance runs a useful one. A query is hopeless if its remaining time is below 1.25 times the high
//! quantile of service times. It is rejected only if the queue is so long that the last query would be late in its
//! turn as well, and if that query would be in time when started now. So a short burst loses no query, and
//! deadlines shorter than a run have no effect.
//!
//! Only queries before the last one of the lane count: those of its payer that are not less urgent. Other payers
//! take the part of the slots that their weight gives them. Counting the whole queue would let a backlog of
//! unimportant queries, or the flood of one tenant, shed the urgent queries of another.
//!
//! Rejected: shedding the last query first (under steady overload the oldest queries would wait in vain);
//! admission control by expected wait (it depends on later arrivals, priorities and other models); shedding by
//! least time left (all queries fail under overload). Clients that leave without cancelling are not known here;
//! the queue limit must be short for them.
//!
//! Cold start: while service times are unknown no query is shed.

use crate::api::{Time, times};
use crate::rules::batching::{needs_left, time_of_row};
use crate::state::State;
use crate::state::keys::{PoolKey, QueryKey};
use crate::state::pool::Pool;
use crate::state::query::StandInState;
use crate::state::queue::LaneId;
use crate::turn::Turn;

/// The time that a query must have left, as a multiple of the high quantile of service times.
const MARGIN: f64 = 1.25;

/// The largest number of runs that a turn counts.
const MOST_RUNS: f64 = 1e6;

/// Whether the first query of a lane is hopeless, and the last would be in time now but not in its turn.
pub(crate) fn is_overloaded(state: &State, turn: &Turn, key: PoolKey, lane: LaneId) -> bool {
    let pool = state.pools.at(key);
    let (Some(recent), Some(each)) = (pool.service.reading(), time_of_row(pool)) else { return false };
    let Some((first, last)) = ends(state, key, lane) else { return false };
    let (first, last) = (state.queries.at(first), state.queries.at(last));
    let least = needs_left(pool).unwrap_or_default();
    let ends_at: Time = turn.now + times(recent.high, MARGIN).max(least);
    let wait = times(each, runs_before(state, pool, lane));
    first.deadline < ends_at
        && last.deadline >= ends_at
        && last.deadline < ends_at + wait
        // A query with a stand-in is answered by it.
        && first.stand_in == StandInState::None
}

/// The rows that each of the pool's slots runs before the last query of a lane: those of its payer that are not less urgent, by
/// the part of the slots that the payer has while others wait.
fn runs_before(state: &State, pool: &Pool, lane: LaneId) -> f64 {
    let before = f64::from(pool.queue.waiting_until(lane.payer, lane.priority));
    let all: f64 = pool.queue.payers().map(|payer| state.book.weight(&payer)).sum();
    let part = if all > 0.0 { state.book.weight(&lane.payer) / all } else { 1.0 };
    (before / (f64::from(pool.slots.max(1)) * part)).min(MOST_RUNS)
}

/// The first and the last query of a lane.
pub(crate) fn ends(state: &State, key: PoolKey, lane: LaneId) -> Option<(QueryKey, QueryKey)> {
    state.pools.at(key).queue.ends(lane, |query| state.queries.get(query).is_some_and(|query| query.queued))
}
