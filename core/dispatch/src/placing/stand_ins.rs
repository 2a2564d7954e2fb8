//! Stand-ins find an instance: spare ones if an instance is idle, late ones before all other work.
//!
//! The rows of a job are gathered when an instance takes it, oldest first. Before that a query may be answered or
//! become late. An instance never runs the stand-in of a query that it holds itself: such queries are passed over, because
//! those behind them may run there.

use smallvec::SmallVec;

use crate::api::{Apart, Class, Cost, Role, Urgency, farthest};
use crate::moves::line_up::leave_queue;
use crate::moves::start::{Start, start};
use crate::rules::sites::sites_of_query;
use crate::rules::stand_in::{
    holds, is_slow, may_stand_in, may_stand_in_apart, may_stand_in_for, takes_stand_ins, wants_stand_in,
};
use crate::state::State;
use crate::state::instance::Serves;
use crate::state::keys::{InstanceKey, Keys, PoolKey, QueryKey};
use crate::state::stand_ins::StandInLine;
use crate::turn::Turn;

/// Queries of a line that are examined for a job, and for its rows.
const LOOK_AT: usize = 16;

/// Gives a pool's stand-ins to instances with room, first to those without the deployed model: they fail with other
/// things, and their work delays no query.
pub(crate) fn place_stand_ins(state: &mut State, turn: &mut Turn, pool: PoolKey, line: StandInLine) {
    place_apart(state, turn, pool, line);
    while !state.pools.at(pool).idle.is_empty() && may_stand_in(state, turn, pool, line) {
        if first_that(state, pool, line, |_, _| Some(())).is_none() {
            return;
        }
        // The choice is random. In turns with queries an instance would always serve the same other one, and
        // comparisons of the two would not show which is wrong.
        let chance = state.random();
        let takes =
            |index| state.instances.key_at(index).is_some_and(|key| takes_stand_ins(state, pool, key, line));
        if state.pools.at(pool).idle.any(chance, takes).is_none() {
            return;
        }
        let chosen = first_that(state, pool, line, |state, query| choose(state, pool, query, line, chance));
        let Some(instance) = chosen else { return };
        if !stand_in(state, turn, pool, instance, line) {
            return;
        }
    }
}

/// Chooses an instance with the deployed model for a query's stand-in, far from those that hold the query.
fn choose(
    state: &State,
    pool: PoolKey,
    query: QueryKey,
    line: StandInLine,
    chance: f64,
) -> Option<InstanceKey> {
    let idle = &state.pools.at(pool).idle;
    let others = sites_of_query(state, query);
    let suits = |index: usize| {
        state.instances.key_at(index).is_some_and(|key| may_stand_in_for(state, pool, key, query, line))
    };
    // A slow instance may be slow again, and so may the neighbours of the instance that holds the query.
    let well = |index: usize, wish: Apart| {
        let instance = state.instances.key_at(index).and_then(|key| state.instances.get(key));
        instance.is_some_and(|instance| {
            !is_slow(state.pools.at(pool), pool, instance) && instance.site.apart_from_all(&others) >= wish
        })
    };
    let chosen = farthest(&others, |wish| idle.any(chance, |index| well(index, wish) && suits(index)));
    chosen.or_else(|| idle.any(chance, suits)).and_then(|index| state.instances.key_at(index))
}

fn place_apart(state: &mut State, turn: &mut Turn, pool: PoolKey, line: StandInLine) {
    while may_stand_in_apart(state, pool, line) {
        let found = first_that(state, pool, line, |state, query| {
            state.pools.at(pool).apart_idle.find(|index| {
                state
                    .instances
                    .key_at(index)
                    .is_some_and(|key| may_stand_in_for(state, pool, key, query, line))
            })
        });
        let Some(found) = found else { return };
        let Some(instance) = state.instances.key_at(found.index) else { return };
        state.pools.at_mut(pool).apart_idle.go_on_after(found);
        if !stand_in(state, turn, pool, instance, line) {
            return;
        }
    }
}

/// Gives an instance a stand-in job, if one suits.
pub(crate) fn take_stand_in(
    state: &mut State,
    turn: &mut Turn,
    instance: InstanceKey,
    line: StandInLine,
) -> bool {
    for index in 0..state.instances.at(instance).serves.len() {
        let of = state.instances.at(instance);
        let serves = &of.serves[index];
        let (pool, apart) = (serves.pool, serves.is_apart());
        if !of.has_place_for(serves) {
            continue;
        }
        let may =
            apart && may_stand_in_apart(state, pool, line) || !apart && may_stand_in(state, turn, pool, line);
        // Queries at the front that need none are removed first: a token would be reserved for them again and again.
        let waits = may && first_that(state, pool, line, |_, _| Some(())).is_some();
        if !waits || !takes_stand_ins(state, pool, instance, line) {
            continue;
        }
        let suits = |state: &State, query| (!holds(state, instance, query)).then_some(());
        if first_that(state, pool, line, suits).is_some() && stand_in(state, turn, pool, instance, line) {
            return true;
        }
    }
    false
}

/// The first result for the queries of a line that need a stand-in. Others before it are removed.
fn first_that<T>(
    state: &mut State,
    key: PoolKey,
    line: StandInLine,
    suits: impl Fn(&State, QueryKey) -> Option<T>,
) -> Option<T> {
    for at in 0..LOOK_AT {
        let query = loop {
            let next = *state.pools.at(key).stand_ins.as_ref()?.line(line).get(at)?;
            let pool = state.pools.at(key);
            if state.queries.get(next).is_some_and(|query| wants_stand_in(query, pool)) {
                break next;
            }
            state.pools.at_mut(key).stand_ins.as_mut()?.waiting(line).remove(at);
        };
        if let Some(found) = suits(state, query) {
            return Some(found);
        }
    }
    None
}

/// Starts a stand-in job on an instance with room. False if the budget does not pay for it.
pub(crate) fn stand_in(
    state: &mut State,
    turn: &mut Turn,
    key: PoolKey,
    instance: InstanceKey,
    line: StandInLine,
) -> bool {
    let apart = state.instances.at(instance).serves(key).is_some_and(Serves::is_apart);
    let cost = state.pools.at(key).stand_in_cost_at(apart);
    let Some((rows, taken)) = gather(state, key, instance, line, &cost) else { return false };
    // Queries that leave the queue save work and cost none.
    let beside = rows.iter().filter(|query| !state.queries.at(**query).queued).count();
    let pool = state.pools.at_mut(key);
    let Some(stand_ins) = &mut pool.stand_ins else { return false };
    for place in taken.into_iter().rev() {
        stand_ins.waiting(line).remove(place);
    }
    let count = rows.len() as u64;
    let urgency = line.urgency();
    match urgency {
        Urgency::Spare => pool.counters.stand_ins_spare += count,
        Urgency::Late if beside > 0 && !apart && !stand_ins.work.spend_part(cost.of(beside)) => {
            // Running ones are in the early line since their start and may find an idle instance; waiting ones
            // will be. An instance apart needs no budget, and may become free.
            pool.counters.stand_ins_refused += count;
            if pool.apart > 0 {
                stand_ins.waiting(line).extend(rows);
            }
            return false;
        }
        Urgency::Late => pool.counters.stand_ins_late += count,
    }
    if rows.is_empty() {
        return false;
    }
    rows.iter().for_each(|query| leave_queue(state, *query));
    let class = match urgency {
        Urgency::Late => Class::Late,
        Urgency::Spare => Class::Spare,
    };
    start(
        state,
        turn,
        Start { pool: key, instance, role: Role::StandIn(urgency), rows, class, purpose: None },
    );
    true
}

/// The first suitable queries of a line for a stand-in job on an instance, and the places to clear in the line: theirs and
/// those of queries that need none.
fn gather(
    state: &State,
    pool: PoolKey,
    instance: InstanceKey,
    line: StandInLine,
    cost: &Cost,
) -> Option<(Keys, SmallVec<[usize; 4]>)> {
    let pool = state.pools.at(pool);
    let waiting = pool.stand_ins.as_ref()?.line(line);
    let most = pool.policy.rows_at_once(cost, waiting.len());
    let (mut rows, mut taken, mut passed) = (Keys::new(), SmallVec::new(), 0);
    for (place, next) in waiting.iter().enumerate() {
        if rows.len() >= most || passed >= LOOK_AT {
            break;
        }
        let fresh = state.queries.get(*next).filter(|_| !rows.contains(next));
        let Some(query) = fresh.filter(|query| wants_stand_in(query, pool)) else {
            taken.push(place);
            continue;
        };
        let mixes = |first: &QueryKey| {
            let first = state.queries.at(*first);
            let plain = first.codable && query.codable;
            // The stand-in is another model, of which it is not known whether it takes padded rows.
            let alike = first.shape == query.shape && (first.size == query.size || !query.padded);
            plain && alike && first.payer == query.payer
        };
        if rows.first().is_none_or(mixes) && !holds(state, instance, *next) {
            taken.push(place);
            rows.push(*next);
        } else {
            passed += 1;
        }
    }
    Some((rows, taken))
}
