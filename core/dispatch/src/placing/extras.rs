//! Extra jobs find an instance.

use smallvec::SmallVec;

use crate::api::{Role, farthest};
use crate::moves::start::{Start, start};
use crate::moves::watch::look_again;
use crate::rules::sites::sites_of;
use crate::rules::suits::may_run;
use crate::rules::turn::leaves_reserved;
use crate::state::State;
use crate::state::arena::Key;
use crate::state::extra::{Extra, ExtraLine, Purpose};
use crate::state::group::Stage;
use crate::state::keys::{InstanceKey, Keys, PoolKey};
use crate::state::pool::Pool;
use crate::turn::Turn;

/// Extra jobs that are examined for one that fits. Those before it wait for instances that do not hold their
/// queries, which is rare and short.
const LOOK_AT: usize = 16;

/// Gives a pool's extra jobs to instances with room.
pub(crate) fn feed_extras(state: &mut State, turn: &mut Turn, key: PoolKey, class: ExtraLine) {
    let mut at = 0;
    let room = |pool: &mut Pool| match class {
        _ if pool.extras(class).is_empty() => false,
        ExtraLine::Spare if !pool.has_headroom() => false,
        _ => !pool.idle.is_empty() || !pool.redundancy_idle.is_empty(),
    };
    while at < LOOK_AT && room(state.pools.at_mut(key)) {
        let Some(extra) = first_wanted(state, turn, key, class, at) else { break };
        let leaves = leaves_reserved(state, turn, key);
        let chosen = choose(state, turn, key, &extra, leaves);
        settle(state, turn, key, class, &mut at, extra, chosen);
    }
}

/// Gives an instance an extra job, if one suits.
pub(crate) fn take_extra(
    state: &mut State,
    turn: &mut Turn,
    instance: InstanceKey,
    class: ExtraLine,
) -> bool {
    for index in 0..state.instances.at(instance).serves.len() {
        let of = state.instances.at(instance).serves[index].pool;
        let mut at = 0;
        let pool = state.pools.at_mut(of);
        if pool.extras(class).is_empty() || (class == ExtraLine::Spare && !pool.has_headroom()) {
            continue;
        }
        while at < LOOK_AT {
            let Some(extra) = first_wanted(state, turn, of, class, at) else { break };
            let leaves = leaves_reserved(state, turn, of);
            let chosen = may_run(state, turn, of, &extra, instance, leaves).then_some(instance);
            settle(state, turn, of, class, &mut at, extra, chosen);
            if chosen.is_some() {
                return true;
            }
        }
    }
    false
}

/// Removes the extra job at a place, without answered queries, and for a retry without queries that a replica
/// runs. Jobs without queries are dropped on the way.
fn first_wanted(state: &mut State, turn: &Turn, key: PoolKey, class: ExtraLine, at: usize) -> Option<Extra> {
    loop {
        let mut extra = state.pools.at_mut(key).extras(class).remove(at)?;
        let (retry, mut taken_over) = (extra.role == Role::Deployed, Keys::new());
        extra.rows.retain(|key| match state.queries.get_mut(*key) {
            Some(query) if retry && !query.jobs.is_empty() => {
                query.extras -= 1;
                taken_over.push(*key);
                false
            }
            found => found.is_some(),
        });
        let jobs = taken_over.iter().flat_map(|query| state.queries.at(*query).jobs.clone());
        let jobs: SmallVec<[_; 2]> = jobs.collect();
        jobs.into_iter().for_each(|job| look_again(state, turn, job));
        let wanted = match extra.role {
            Role::Parity(group, _) => {
                state.groups.get(Key::from(group)).is_some_and(|g| g.stage == Stage::Coded)
            }
            _ => !extra.rows.is_empty(),
        };
        if wanted {
            return Some(extra);
        }
        state.pools.at_mut(key).counters.parities_unsent += u64::from(matches!(extra.role, Role::Parity(..)));
        if extra.purpose == Purpose::Hedge {
            state.pools.at_mut(key).hedges.refund();
        }
    }
}

/// Starts a removed extra job, or puts it back and advances.
fn settle(
    state: &mut State,
    turn: &mut Turn,
    pool: PoolKey,
    class: ExtraLine,
    at: &mut usize,
    extra: Extra,
    chosen: Option<InstanceKey>,
) {
    let Some(instance) = chosen else {
        state.pools.at_mut(pool).extras(class).insert(*at, extra);
        *at += 1;
        return;
    };
    if class == ExtraLine::Urgent {
        extra.rows.iter().for_each(|query| state.queries.at_mut(*query).extras -= 1);
    }
    let Extra { role, rows, purpose, .. } = extra;
    start(
        state,
        turn,
        Start { pool, instance, role, rows, class: class.among_all(), purpose: Some(purpose) },
    );
}

/// Chooses an instance with room for an extra job, far from those that hold its queries or the members of its
/// group.
fn choose(state: &mut State, turn: &Turn, key: PoolKey, extra: &Extra, leaves: bool) -> Option<InstanceKey> {
    let others = sites_of(state, extra);
    let pool = state.pools.at_mut(key);
    let idle = if extra.redundant() { &mut pool.redundancy_idle } else { &mut pool.idle };
    let mut idle = std::mem::take(idle);
    let suits = |index, wish| {
        state.instances.key_at(index).is_some_and(|instance| {
            let apart = state.instances.at(instance).site.apart_from_all(&others);
            apart >= wish && may_run(state, turn, key, extra, instance, leaves)
        })
    };
    let chosen = farthest(&others, |wish| idle.next(|index| suits(index, wish)));
    let chosen = chosen.and_then(|index| state.instances.key_at(index));
    let pool = state.pools.at_mut(key);
    *(if extra.redundant() { &mut pool.redundancy_idle } else { &mut pool.idle }) = idle;
    chosen
}
