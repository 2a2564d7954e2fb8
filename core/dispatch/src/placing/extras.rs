//! Extra jobs find an instance.

use smallvec::SmallVec;

use crate::api::{Role, farthest};
use crate::moves::start::{Start, start};
use crate::moves::watch::look_again;
use crate::rules::sites::sites_of;
use crate::rules::suits::{is_redundancy, may_run};
use crate::rules::turn::leaves_reserved;
use crate::state::State;
use crate::state::arena::Key;
use crate::state::extra::{Extra, ExtraLine, Purpose};
use crate::state::group::Stage;
use crate::state::keys::{InstanceKey, Keys, PoolKey};
use crate::state::pool::Pool;
use crate::turn::Turn;

/// Extra jobs that are passed over for one that fits. They wait for instances that do not hold their queries, which is
/// rare and short.
const PASS_OVER: usize = 16;

/// Hedges and other redundancy that are passed over in addition. They may have to leave instances that are reserved for
/// other shares, which a retry behind them may use.
const PASS_REDUNDANT: usize = 256;

/// A walk through a line of extra jobs.
#[derive(Default)]
struct Walk {
    /// The place of the next job.
    at: usize,
    /// Redundant jobs before it.
    redundant: usize,
}

impl Walk {
    fn goes_on(&self) -> bool {
        self.at - self.redundant < PASS_OVER && self.redundant <= PASS_REDUNDANT
    }
}

/// Gives a pool's extra jobs to instances with room.
pub(crate) fn place_extras(state: &mut State, turn: &mut Turn, key: PoolKey, class: ExtraLine) {
    let mut walk = Walk::default();
    let has_room = |pool: &Pool| !pool.idle.is_empty() || !pool.redundancy_idle.is_empty();
    while walk.goes_on() {
        let pool = state.pools.at(key);
        if !may_start(pool, class) || !has_room(pool) {
            return;
        }
        let Some(extra) = first_wanted(state, turn, key, class, walk.at) else { return };
        let leaves = leaves_reserved(state, turn, key);
        let chosen = choose(state, turn, key, &extra, leaves);
        settle(state, turn, (key, class), &mut walk, extra, chosen);
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
        let own = state.instances.at(instance);
        let (of, is_full) = (own.serves[index].pool, !own.has_place_for(&own.serves[index]));
        let mut walk = Walk::default();
        if is_full || !may_start(state.pools.at(of), class) {
            continue;
        }
        while walk.goes_on() {
            let Some(extra) = first_wanted(state, turn, of, class, walk.at) else { break };
            let leaves = leaves_reserved(state, turn, of);
            let chosen = may_run(state, turn, of, &extra, instance, leaves).then_some(instance);
            settle(state, turn, (of, class), &mut walk, extra, chosen);
            if chosen.is_some() {
                return true;
            }
        }
    }
    false
}

/// Whether a line has jobs that may start, as far as the pool is concerned.
fn may_start(pool: &Pool, class: ExtraLine) -> bool {
    match class {
        ExtraLine::Urgent => !pool.urgent.is_empty(),
        ExtraLine::Spare => !pool.spare.is_empty() && pool.has_headroom(),
    }
}

/// Removes the extra job at a place, without queries that are answered or get no further jobs, and for a retry without
/// queries that a replica runs. Jobs without queries are dropped on the way.
fn first_wanted(state: &mut State, turn: &Turn, key: PoolKey, class: ExtraLine, at: usize) -> Option<Extra> {
    loop {
        let mut extra = state.pools.at_mut(key).extras(class).remove(at)?;
        let (retry, mut taken_over) = (extra.role == Role::Deployed, Keys::new());
        extra.rows.retain(|key| match state.queries.get_mut(*key) {
            Some(query) if query.withheld || retry && !query.jobs.is_empty() => {
                query.extras -= u8::from(class == ExtraLine::Urgent);
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
    (pool, class): (PoolKey, ExtraLine),
    walk: &mut Walk,
    extra: Extra,
    chosen: Option<InstanceKey>,
) {
    let Some(instance) = chosen else {
        let redundant = class == ExtraLine::Urgent && is_redundancy(state, turn, &extra);
        state.pools.at_mut(pool).extras(class).insert(walk.at, extra);
        walk.at += 1;
        walk.redundant += usize::from(redundant);
        return;
    };
    if class == ExtraLine::Urgent {
        extra.rows.iter().for_each(|query| state.queries.at_mut(*query).extras -= 1);
    }
    let Extra { role, rows, purpose, .. } = extra;
    let class = class.among_all();
    state.pools.at_mut(pool).counters.hedges += u64::from(purpose == Purpose::Hedge);
    start(state, turn, Start { pool, instance, role, rows, class, purpose: Some(purpose) });
}

/// Chooses an instance with room for an extra job, far from those that hold its queries or the members of its
/// group.
fn choose(state: &mut State, turn: &Turn, key: PoolKey, extra: &Extra, leaves: bool) -> Option<InstanceKey> {
    let others = sites_of(state, extra);
    let pool = state.pools.at(key);
    let idle = if extra.redundant() { &pool.redundancy_idle } else { &pool.idle };
    let suits = |index, wish| {
        state.instances.key_at(index).is_some_and(|instance| {
            let apart = state.instances.at(instance).site.apart_from_all(&others);
            apart >= wish && may_run(state, turn, key, extra, instance, leaves)
        })
    };
    let found = farthest(&others, |wish| idle.find(|index| suits(index, wish)))?;
    let pool = state.pools.at_mut(key);
    (if extra.redundant() { &mut pool.redundancy_idle } else { &mut pool.idle }).go_on_after(found);
    state.instances.key_at(found.index)
}
