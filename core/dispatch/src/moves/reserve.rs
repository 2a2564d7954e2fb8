//! Reservations at instances whose tokens are held by other frontends.
//!
//! A pool whose work finds no room reserves at a few instances for each waiting job, at more as time passes, and
//! withdraws when no work waits. It begins with instances on which it runs nothing, because its own jobs bring
//! tokens back.
//!
//! Problem: with three frontends over a clean pool at 0.7 of its capacity, the tail was a sixth longer than with one,
//! and with slow instances up to three times as long. Workers granted tokens in the order of reservations. A frontend
//! with several queries had reserved everywhere for the first of them, and its later ones went before older ones of
//! other frontends.
//!
//! Choice: a reservation carries the wait of the query that its token would serve, and workers order by it. When that
//! query is served elsewhere, the next one is younger: reservations are updated once it is younger by a part of a run.
//! None is made at an instance that may not run the work: its token would come, go back, and be reserved again.
//!
//! Rejected: a reservation for each query by name, fetched by that name. Queries of a pool are alike, so the first
//! may use the token, and a name would have to be withdrawn at every worker when its query is answered otherwise.

use std::num::NonZeroU16;
use std::time::Duration;

use smallvec::SmallVec;

use crate::api::{Action, Class, Note, Order, Payer, Time, Wanted};
use crate::moves::neighbours::{limit_neighbour_wait, limit_neighbour_waits_of};
use crate::rules::finish::waits_for_faster;
use crate::rules::late_work::{suits_late_work, takes_class};
use crate::rules::unexplored::is_unexplored;
use crate::rules::waiting::{first_arrival, waiting_jobs};
use crate::state::State;
use crate::state::keys::{InstanceKey, PoolKey};
use crate::state::pool::Pool;
use crate::state::reservations::{Asked, Jobs, NO_JOBS};
use crate::state::timers::Timer;
use crate::state::tokens::Tokens;
use crate::state::versions::Versions;
use crate::turn::Turn;

/// A reservation is updated if the next query is younger by more than this part of a run. Less costs messages.
const YOUNGER: u32 = 8;

/// The least time between reservations for exploring copies.
const EXPLORES: Duration = Duration::from_millis(25);

/// Lets the pools of an instance that takes work reserve there.
pub(crate) fn request_reservations_at(state: &mut State, turn: &Turn, key: InstanceKey) {
    limit_neighbour_waits_of(state, turn, key);
    if state.token_givers > 0 {
        let serves = &state.instances.at(key).serves;
        let pools: SmallVec<[_; 2]> = serves.iter().map(|serves| serves.pool).collect();
        pools.into_iter().for_each(|pool| request_reservations(state, turn, pool));
    }
}

/// Lists a pool whose work found no room for reservations.
pub(crate) fn request_reservations(state: &mut State, turn: &Turn, key: PoolKey) {
    limit_neighbour_wait(state, turn, key);
    if state.token_givers > 0 && !std::mem::replace(&mut state.pools.at_mut(key).asking.listed, true) {
        state.asking.push(key);
    }
}

/// Reserves for listed pools, and withdraws for those without waiting work.
pub(crate) fn reserve(state: &mut State, turn: &mut Turn) {
    let mut at = 0;
    while let Some(key) = state.asking.get(at).copied() {
        if state.pools.contains(key) && reserve_for(state, turn, key) {
            at += 1;
            continue;
        }
        state.asking.swap_remove(at);
        if let Some(pool) = state.pools.get_mut(key) {
            (pool.asking.listed, pool.asking.widened, pool.asking.counted) = (false, 0, None);
        }
        withdraw_reservations(state, turn, key);
    }
}

/// Reserves for the waiting work of a pool. False if there is none, or if its model is unloaded.
fn reserve_for(state: &mut State, turn: &mut Turn, key: PoolKey) -> bool {
    if state.pools.at(key).removed {
        return false;
    }
    let wanted = waiting_jobs(state, turn, key);
    if wanted.is_empty() {
        return false;
    }
    let pool = state.pools.at_mut(key);
    let each = u32::from(pool.settings.tokens.reservations.get());
    let widen = pool.settings.tokens.widen;
    let asking = &mut pool.asking;
    let widened = asking.widened;
    let goal = |wanted: u32| if wanted == 0 { 0 } else { wanted.saturating_mul(each) + widened };
    if !std::mem::replace(&mut asking.timed, true) {
        state.timers.set(turn.now + widen, Timer::Widen(key));
    }
    for (payer, jobs) in &wanted.0 {
        let reserved = state.pools.at(key).asking.reserved.of(*payer);
        for class in [Class::Late, Class::Query, Class::Spare] {
            let at = usize::from(class.byte());
            let missing = goal(jobs[at]).saturating_sub(reserved[at]);
            if missing > 0 {
                reserve_more(state, turn, key, *payer, class, missing);
            }
        }
        update_waits(state, turn, key, *payer);
    }
    // A payer without waiting work must not hold a place.
    let stale =
        |(payer, jobs): &(Payer, Jobs)| (*jobs != NO_JOBS && wanted.of(*payer) == NO_JOBS).then_some(*payer);
    let stale: SmallVec<[Payer; 1]> =
        state.pools.at(key).asking.reserved.0.iter().filter_map(stale).collect();
    if !stale.is_empty() {
        withdraw_of(state, turn, key, |payer| stale.contains(&payer));
    }
    true
}

/// Reserves at this many more instances, from a random one on. Frontends that began with the same would all wait
/// there.
fn reserve_more(
    state: &mut State,
    turn: &mut Turn,
    key: PoolKey,
    payer: Payer,
    class: Class,
    mut missing: u32,
) {
    let first = first_arrival(state, key, payer, class).unwrap_or(turn.now);
    let pool = state.pools.at_mut(key);
    if *pool.asking.reserved.count(payer, class) >= most_of(pool, class) {
        return;
    }
    let keys = state.instances.keys();
    let from = (state.random() * keys.len() as f64) as usize;
    for runs_ours in [false, true] {
        for at in 0..keys.len() {
            let at = keys[(from + at) % keys.len()];
            let now = turn.now;
            let instance = state.instances.at(at);
            let known = |asked: &Asked| (asked.pool, asked.payer, asked.class) == (key, payer, class);
            let is_free = |tokens: &Tokens| !tokens.is_ready() && !tokens.asked.iter().any(known);
            if instance.jobs.is_empty() == runs_ours || !instance.tokens.as_ref().is_some_and(is_free) {
                continue;
            }
            if !takes_class(state, turn, key, at, class) {
                continue;
            }
            if missing == 0 {
                return;
            }
            if waits_elsewhere(state, turn, key, at, class) {
                // Its token would be returned at once, and reserved again; but a copy may explore it now and then.
                if turn.now < state.pools.at(key).explore_at || !is_unexplored(state, turn, key, at) {
                    continue;
                }
                state.pools.at_mut(key).explore_at = turn.now + EXPLORES;
            }
            let instance = state.instances.at_mut(at);
            let Some(tokens) = &mut instance.tokens else { continue };
            missing -= 1;
            state.noted = state.noted.wrapping_add(1).max(1);
            let note = Note(state.noted);
            let (pool, id) = (state.pools.at_mut(key), instance.id);
            let asked = Asked { pool: key, id: pool.id, payer, class, since: now, first, note };
            tokens.asked.push(asked);
            *pool.asking.reserved.count(payer, class) += 1;
            turn.out.push(Action::Tell(id, reservation(&state.versions, &tokens.asked, &asked, now)));
        }
    }
}

/// Most reservations of a payer and class: one at each instance that may take the work.
fn most_of(pool: &Pool, class: Class) -> u32 {
    match class {
        Class::Late => pool.usable + pool.apart + pool.kept,
        Class::Query => pool.usable,
        Class::Spare => pool.kept,
    }
}

/// Reports the wait of a payer's first query where a reservation counts that of an older one, which was served.
fn update_waits(state: &mut State, turn: &mut Turn, key: PoolKey, payer: Payer) {
    let Some(first) = first_arrival(state, key, payer, Class::Query) else { return };
    let pool = state.pools.at_mut(key);
    let least = pool.taken().unwrap_or_default() / YOUNGER;
    let counted = pool.asking.counted.filter(|(of, _)| *of == payer);
    if counted.is_some_and(|(_, counted)| first <= counted + least) {
        return;
    }
    pool.asking.counted = Some((payer, first));
    for instance in state.instances.keys() {
        let instance = state.instances.at_mut(instance);
        let Some(tokens) = &mut instance.tokens else { continue };
        for at in 0..tokens.asked.len() {
            let asked = &mut tokens.asked[at];
            let own = (asked.pool, asked.payer, asked.class) == (key, payer, Class::Query);
            if own && asked.first + least < first {
                asked.first = first;
                let order = reservation(&state.versions, &tokens.asked, &tokens.asked[at], turn.now);
                turn.out.push(Action::Tell(instance.id, order));
            }
        }
    }
}

/// The order of a reservation next to the others at its instance. Those that the worker takes for the same one share the
/// longest wait.
fn reservation(versions: &Versions, others: &[Asked], asked: &Asked, now: Time) -> Order<Wanted> {
    let is_same =
        |other: &&Asked| other.class == asked.class && versions.are_one(other.wanted(), asked.wanted());
    let first = others.iter().filter(is_same).map(|other| other.first).fold(asked.first, Time::min);
    Order::Reserve(asked.wanted(), asked.class, asked.note, now.since(first))
}

/// Whether waiting work of a class should wait for a faster instance than this one.
fn waits_elsewhere(state: &State, turn: &Turn, key: PoolKey, at: InstanceKey, class: Class) -> bool {
    let waits = class == Class::Query || class == Class::Late && !suits_late_work(state, turn, key, at);
    waits && waits_for_faster(state, turn, key, at).is_some()
}

/// Reserves at more instances, because work has waited long, and renews old reservations.
pub(crate) fn widen_reservations(state: &mut State, turn: &mut Turn, key: PoolKey) {
    let Some(pool) = state.pools.get_mut(key) else { return };
    pool.asking.timed = false;
    if !pool.asking.listed {
        return;
    }
    let most = most_of(pool, Class::Late);
    let each = u32::from(pool.settings.tokens.reservations.get());
    pool.asking.widened = (pool.asking.widened + each).min(most);
    renew_reservations(state, turn, key);
}

/// Repeats the old reservations of a pool, whose messages may have been lost. Withdraws those whose work is gone or may
/// not run there by now.
fn renew_reservations(state: &mut State, turn: &mut Turn, key: PoolKey) {
    let (now, renew) = (turn.now, state.pools.at(key).settings.tokens.renew);
    let is_old = |asked: &Asked| asked.pool == key && asked.since + renew <= now;
    let mut wanted = None;
    for at in state.instances.keys() {
        let tokens = state.instances.at(at).tokens.iter();
        let old: SmallVec<[Asked; 1]> =
            tokens.flat_map(|tokens| &tokens.asked).filter(|asked| is_old(asked)).copied().collect();
        if old.is_empty() {
            continue;
        }
        let wanted = wanted.get_or_insert_with(|| waiting_jobs(state, turn, key));
        let stays = |asked: &&Asked| {
            wanted.of(asked.payer)[usize::from(asked.class.byte())] > 0
                && takes_class(state, turn, key, at, asked.class)
                && !waits_elsewhere(state, turn, key, at, asked.class)
        };
        let latest = |asked: &Asked| {
            let first = first_arrival(state, key, asked.payer, asked.class).unwrap_or(asked.first);
            (asked.note, first)
        };
        let kept: SmallVec<[(Note, Time); 1]> = old.iter().filter(stays).map(latest).collect();
        withdraw_at(state, turn, at, |asked| {
            is_old(asked) && kept.iter().all(|(note, _)| *note != asked.note)
        });
        let instance = state.instances.at_mut(at);
        let Some(tokens) = &mut instance.tokens else { continue };
        for (note, first) in kept {
            let Some(asked) = tokens.asked.iter_mut().find(|asked| asked.note == note) else { continue };
            (asked.since, asked.first) = (now, first);
            let renewed = *asked;
            let order = reservation(&state.versions, &tokens.asked, &renewed, now);
            turn.out.push(Action::Tell(instance.id, order));
        }
    }
}

/// Withdraws all reservations of a pool.
pub(crate) fn withdraw_reservations(state: &mut State, turn: &mut Turn, key: PoolKey) {
    if state.pools.get(key).is_some_and(|pool| pool.asking.reserved.is_empty()) {
        return;
    }
    withdraw_of(state, turn, key, |_| true);
    if let Some(pool) = state.pools.get_mut(key) {
        pool.asking.reserved.0.clear();
    }
}

/// Withdraws the reservations of some payers of a pool, which may be gone.
fn withdraw_of(state: &mut State, turn: &mut Turn, key: PoolKey, which: impl Fn(Payer) -> bool) {
    for instance in state.instances.keys() {
        withdraw_at(state, turn, instance, |asked| asked.pool == key && which(asked.payer));
    }
    if let Some(pool) = state.pools.get_mut(key) {
        pool.asking.reserved.0.retain(|(payer, _)| !which(*payer));
    }
}

/// Withdraws some reservations at an instance.
fn withdraw_at(state: &mut State, turn: &mut Turn, at: InstanceKey, which: impl Fn(&Asked) -> bool) {
    let instance = state.instances.at_mut(at);
    let Some(tokens) = &mut instance.tokens else { return };
    let mut gone: SmallVec<[Wanted; 1]> = SmallVec::new();
    tokens.asked.retain(|asked| {
        let goes = which(asked);
        if goes && !gone.contains(&asked.wanted()) {
            gone.push(asked.wanted());
        }
        if goes && let Some(pool) = state.pools.get_mut(asked.pool) {
            *pool.asking.reserved.count(asked.payer, asked.class) -= 1;
        }
        !goes
    });
    turn.out.extend(gone.iter().map(|wanted| Action::Tell(instance.id, Order::Withdraw(*wanted))));
    // The worker withdraws those of other classes and versions with them.
    let lost = |asked: &&Asked| {
        let own = asked.wanted();
        gone.iter().any(|gone| *gone == own || state.versions.are_one(*gone, own))
    };
    turn.out.extend(tokens.asked.iter().filter(lost).map(|asked| {
        Action::Tell(instance.id, reservation(&state.versions, &tokens.asked, asked, turn.now))
    }));
}

/// Removes the reservations at an instance, which are met or void.
pub(crate) fn clear_reservations(state: &mut State, key: InstanceKey) {
    let Some(tokens) = &mut state.instances.at_mut(key).tokens else { return };
    for asked in std::mem::take(&mut tokens.asked) {
        if let Some(pool) = state.pools.get_mut(asked.pool) {
            *pool.asking.reserved.count(asked.payer, asked.class) -= 1;
        }
    }
}

/// The pool and payer of the reservation with this number.
pub(crate) fn reservation_of(state: &State, key: InstanceKey, note: Note) -> Option<(PoolKey, Payer)> {
    let tokens = state.instances.at(key).tokens.as_ref()?;
    let met = tokens.asked.iter().find(|asked| asked.note == note)?;
    Some((met.pool, met.payer))
}

/// The reservations of late work at an instance.
pub(crate) fn late_reservations(state: &State, key: InstanceKey) -> SmallVec<[Asked; 1]> {
    let tokens = state.instances.at(key).tokens.iter();
    tokens.flat_map(|tokens| &tokens.asked).filter(|asked| asked.class == Class::Late).copied().collect()
}

/// Restores reservations that the instance no longer knows; they are sent again at the next renewal.
pub(crate) fn restore_reservations(
    state: &mut State,
    turn: &Turn,
    key: InstanceKey,
    late: SmallVec<[Asked; 1]>,
) {
    let Some(tokens) = &mut state.instances.at_mut(key).tokens else { return };
    for asked in late {
        if let Some(pool) = state.pools.get_mut(asked.pool) {
            *pool.asking.reserved.count(asked.payer, asked.class) += 1;
            tokens.asked.push(Asked { since: turn.now, ..asked });
        }
    }
}

/// Forgets the tokens of an instance.
pub(crate) fn forget_tokens(state: &mut State, key: InstanceKey) {
    clear_reservations(state, key);
    let Some(tokens) = state.instances.at_mut(key).tokens.take() else { return };
    state.token_givers -= 1;
    state.shared_givers -= u32::from(tokens.are_needed());
}

/// Notes whether other frontends share an instance that gives tokens.
pub(crate) fn note_sharing(state: &mut State, key: InstanceKey, alone: Option<NonZeroU16>) {
    let Some(tokens) = &mut state.instances.at_mut(key).tokens else { return };
    state.shared_givers -= u32::from(tokens.are_needed());
    tokens.alone = alone;
    state.shared_givers += u32::from(tokens.are_needed());
}
