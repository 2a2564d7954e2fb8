//! Chooses which waiting queries of several sizes run in one batch.
//!
//! The batch begins with the oldest query of its lane, so none waits for ever. Those behind it with the nearest
//! sizes are added first, and each only if its padding pays ([`crate::measure::padding`]). A query of another size is
//! left for a batch that begins with one like it. Drivers pad; the dispatcher knows the sizes only.

use smallvec::SmallVec;

use crate::measure::padding::Padded;
use crate::rules::batching::has_time;
use crate::state::State;
use crate::state::keys::{Keys, PoolKey, QueryKey};
use crate::state::queue::LaneId;
use crate::turn::Turn;

/// Queries that are examined, the oldest: two largest batches.
const LOOK_AT: usize = 128;

/// The queries of a batch from a lane of several sizes: with its first query, or with its last. Empty if all queries of the
/// lane have one size, or may not be padded.
pub(crate) fn company(
    state: &State,
    turn: &Turn,
    key: PoolKey,
    lane: LaneId,
    (most, last): (u16, bool),
) -> Keys {
    let pool = state.pools.at(key);
    let Some(padding) = pool.padding.as_deref().filter(|_| !lane.alone && most > 1) else {
        return Keys::new();
    };
    let size = |query: QueryKey| {
        let query = state.queries.get(query).filter(|query| query.queued && query.padded);
        query.map(|query| query.size.max(1))
    };
    let all = pool.queue.in_order(lane, last).filter_map(|query| Some((size(query)?, query)));
    let mut found: SmallVec<[(u32, QueryKey); 64]> = all.take(LOOK_AT).collect();
    let Some((first, oldest)) = found.first().copied() else { return Keys::new() };
    if found.iter().all(|(size, _)| *size == first) {
        return Keys::new();
    }
    // Stable: of equal distances the oldest is first.
    found[1..].sort_by_key(|(size, _)| size.abs_diff(first));
    let (mut rows, mut batch) = (Keys::from_slice(&[oldest]), Padded::one(first));
    for (size, query) in found.into_iter().skip(1) {
        if rows.len() == usize::from(most) {
            break;
        }
        let joined = batch.with(size);
        if joined.units() > u64::from(pool.in_force.max_padded) {
            continue;
        }
        let in_time = size <= batch.largest
            || padding.expected(joined).is_none_or(|nanos| has_time(state, turn, oldest, nanos));
        if in_time && padding.pays(batch, joined) {
            batch = joined;
            rows.push(query);
        }
    }
    rows
}
