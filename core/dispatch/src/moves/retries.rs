//! Returns retries to the budget that bad queries used.

use crate::rules::blame::FIRST_FAILURES;
use crate::state::State;
use crate::state::keys::QueryKey;

/// Returns the retries of a query and the rest of its batch, if only its model failed on it. A query that is cancelled or
/// expires before a verdict must not use up the retries that queries of failing instances need.
pub(crate) fn give_retries_back(state: &mut State, key: QueryKey) {
    let Some(query) = state.queries.get(key).filter(|query| query.retried > 0) else { return };
    if query.failed_at.len() < usize::from(query.failures).min(FIRST_FAILURES) {
        return;
    }
    let pool = state.pools.at_mut(query.pool);
    (0..query.retried).for_each(|_| pool.retries.refund());
    let jobs = query.jobs.iter().filter_map(|job| state.jobs.get(*job)).map(|job| &job.rows);
    let extras = pool.urgent.iter().map(|extra| &extra.rows).filter(|rows| rows.contains(&key));
    let batch: Vec<QueryKey> = jobs.chain(extras).flatten().copied().collect();
    for key in batch {
        if let Some(query) = state.queries.get_mut(key) {
            query.retried = 0;
        }
    }
}
