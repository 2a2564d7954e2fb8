//! Adds work to a line where it waits for an instance.

use smallvec::SmallVec;

use crate::api::{Accept, PolicyKind, Role};
use crate::moves::reserve::request_reservations;
use crate::rules::lateness::late_without_stretch;
use crate::rules::stand_in::{is_slow, wants_stand_in};
use crate::state::State;
use crate::state::extra::{Extra, ExtraLine, Purpose};
use crate::state::keys::{Avoid, JobKey, Keys, PoolKey, QueryKey};
use crate::state::stand_ins::Outlook;
use crate::state::timers::Timer;
use crate::turn::Turn;

/// Adds an extra job.
pub(crate) fn add_extra(state: &mut State, turn: &Turn, key: PoolKey, class: ExtraLine, extra: Extra) {
    if class == ExtraLine::Urgent {
        extra.rows.iter().for_each(|query| state.queries.at_mut(*query).extras += 1);
        request_reservations(state, turn, key);
    } else if extra.redundant() && state.pools.at(key).kept > 0 {
        // Instances that run nothing else get their tokens by it.
        request_reservations(state, turn, key);
    }
    state.pools.at_mut(key).extras(class).push_back(extra);
}

/// Drops the extra jobs of an unloaded model.
pub(crate) fn forget_extras(state: &mut State, key: PoolKey) {
    let Some(pool) = state.pools.get_mut(key) else { return };
    pool.spare.clear();
    for extra in std::mem::take(&mut pool.urgent) {
        for query in extra.rows {
            if let Some(query) = state.queries.get_mut(query) {
                query.extras -= 1;
            }
        }
    }
}

/// Adds a backup job for the queries of a batch that accept its answer: one for each size, because it is not known whether
/// the backup takes padded rows.
pub(crate) fn add_backup(state: &mut State, turn: &Turn, key: PoolKey, mut rows: Keys) {
    rows.retain(|query| state.queries.at(*query).accept == Accept::Any);
    let size = |query: &QueryKey| state.queries.at(*query).size;
    let padded = rows.first().is_some_and(|query| state.queries.at(*query).padded);
    if padded {
        rows.sort_by_key(size);
    }
    let equal = rows.chunk_by(|one, other| !padded || size(one) == size(other));
    let batches: SmallVec<[Keys; 1]> = equal.map(Keys::from_slice).collect();
    for rows in batches {
        let pool = state.pools.at(key);
        if pool.spare.len() < pool.settings.spare_limit.get() as usize {
            let backup = Extra { role: Role::Backup, rows, avoid: None, purpose: Purpose::Spare };
            add_extra(state, turn, key, ExtraLine::Spare, backup);
        }
    }
}

/// Sets the timer after which an extra job may use the instance that it avoids.
pub(crate) fn avoid_until(state: &mut State, pool: PoolKey, avoid: Option<Avoid>) {
    if let Some((_, until)) = avoid {
        state.timers.set(until, Timer::Elsewhere(pool));
    }
}

/// Adds the queries of a started batch to the lines for spare stand-ins.
pub(crate) fn line_up_stand_ins(state: &mut State, turn: &Turn, pool_key: PoolKey, job: JobKey) {
    let pool = state.pools.at(pool_key);
    if pool.in_force.policy != PolicyKind::StandIn || !pool.settings.stand_in.spare {
        return;
    }
    let job = state.jobs.at(job);
    let was_slow = is_slow(pool, pool_key, state.instances.at(job.instance));
    let too_long = late_without_stretch(pool).zip(pool.usual_service());
    let too_long = too_long.map(|(late, usual)| late.saturating_sub(usual));
    let outlook = |key: &QueryKey| {
        let query = state.queries.get(*key).filter(|query| wants_stand_in(query, pool))?;
        let waited = turn.now.since(query.arrived);
        let outlook = match too_long {
            _ if was_slow => Outlook::Doubtful,
            Some(too_long) if waited > too_long => Outlook::Late,
            _ => Outlook::Good,
        };
        Some((*key, outlook))
    };
    let lacking: SmallVec<[(QueryKey, Outlook); 2]> = job.rows.iter().filter_map(outlook).collect();
    let pool = state.pools.at_mut(pool_key);
    let Some(stand_ins) = &mut pool.stand_ins else { return };
    for (key, outlook) in lacking {
        stand_ins.lacks(key, outlook, |query| state.queries.contains(query), pool.unanswered);
    }
}

/// Removes a query from the queue, because it has a stand-in.
pub(crate) fn leave_queue(state: &mut State, key: QueryKey) {
    let query = state.queries.at_mut(key);
    if std::mem::take(&mut query.queued) {
        let (pool, lane) = (query.pool, query.lane());
        state.book.leave(&lane.payer, 1);
        let waits = |other| state.queries.get(other).is_some_and(|query| query.queued);
        state.pools.at_mut(pool).queue.gone(lane, waits);
    }
}
