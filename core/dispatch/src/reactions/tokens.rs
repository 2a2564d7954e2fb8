//! Tokens of instances that this frontend shares with others, and reports of neighbours.
//!
//! The crate `tokens` explains tokens and contains the worker's half. For the rest of the dispatcher an instance
//! that gives tokens has room exactly while one of its tokens is held, so all searches for room work across
//! frontends. A granted token is used for the most urgent work; among queries, for the payer that had reserved.
//! While other frontends wait for the same instance it is never used for spare work, and an unused token is
//! returned at once.

use std::num::NonZeroU16;

use smallvec::SmallVec;

use crate::api::{Action, Elsewhere, Grant, InstanceId, Order, Time, Token};
use crate::moves::hold::give_back;
use crate::moves::neighbours::{limit_neighbour_wait, limit_neighbour_waits_of};
use crate::moves::reserve::{
    clear_reservations, forget_tokens, late_reservations, note_sharing, request_reservations_at,
    reservation_of, restore_reservations,
};
use crate::moves::room::{recount_pools_of, refresh};
use crate::moves::watch::watch_jobs_of;
use crate::placing::{fill, take_redundancy, take_urgent};
use crate::rules::waiting::has_pressing_work;
use crate::state::State;
use crate::state::instance::{Instance, Serves};
use crate::state::keys::{InstanceKey, PoolKey};
use crate::state::timers::Timer;
use crate::state::tokens::{Leased, Tokens};
use crate::turn::Turn;

/// Most tokens that are held of one instance. More than a worker's instances would be an error.
const MOST_HELD: usize = 256;

/// Notes that an instance gives tokens, on a new connection.
pub(crate) fn tokens_offered(state: &mut State, turn: &mut Turn, id: InstanceId) {
    let Some(key) = state.instance_names.get(id) else { return };
    forget_tokens(state, key);
    state.instances.at_mut(key).tokens = Some(Tokens::default());
    state.token_givers += 1;
    state.shared_givers += 1;
    recount_pools_of(state, turn, key);
    refresh(state, turn, key);
    request_reservations_at(state, turn, key);
}

/// Notes the jobs that an instance runs at a time for all frontends together.
pub(crate) fn slots_stated(state: &mut State, turn: &mut Turn, id: InstanceId, slots: NonZeroU16) {
    if let Some(key) = state.instance_names.get(id) {
        note_slots(state, turn, key, slots.get());
    }
}

fn note_slots(state: &mut State, turn: &mut Turn, key: InstanceKey, slots: u16) {
    let Some(tokens) = &mut state.instances.at_mut(key).tokens else { return };
    if std::mem::replace(&mut tokens.told, slots) != slots {
        recount_pools_of(state, turn, key);
    }
}

/// Notes whether other frontends share an instance.
pub(crate) fn tokens_shared(state: &mut State, turn: &mut Turn, id: InstanceId, alone: Option<NonZeroU16>) {
    let Some(key) = state.instance_names.get(id) else { return };
    note_sharing(state, key, alone);
    if state.instances.at(key).tokens.is_none() {
        return;
    }
    if let Some(slots) = alone {
        note_slots(state, turn, key, slots.get());
        clear_reservations(state, key);
    }
    state.instances.at_mut(key).use_slots();
    watch_jobs_of(state, turn, key);
    refresh(state, turn, key);
    fill(state, turn, key);
    if alone.is_none() {
        request_reservations_at(state, turn, key);
    }
}

/// Notes that the connection of an instance's tokens is gone.
pub(crate) fn tokens_ended(state: &mut State, turn: &mut Turn, id: InstanceId) {
    let Some(key) = state.instance_names.get(id) else { return };
    forget_tokens(state, key);
    recount_pools_of(state, turn, key);
    refresh(state, turn, key);
    fill(state, turn, key);
}

/// Uses or keeps a granted token.
pub(crate) fn token_granted(state: &mut State, turn: &mut Turn, id: InstanceId, grant: Grant) {
    let Grant { token, lease, contended, reserved, sharers, met } = grant;
    let Some(key) = state.instance_names.get(id) else { return };
    if state.instances.at(key).tokens.is_none() {
        return;
    }
    let met = reservation_of(state, key, met);
    // The worker counts all reservations of this frontend as met.
    let late = if reserved { late_reservations(state, key) } else { SmallVec::new() };
    clear_reservations(state, key);
    let usable = state.instances.at(key).usable();
    if sharers > 1 {
        // The message that it is shared again may have been lost.
        note_sharing(state, key, None);
    }
    let Some(tokens) = &mut state.instances.at_mut(key).tokens else { return };
    tokens.sharers = sharers;
    if tokens.held.iter().any(|held| held.token == token) {
        return; // it came twice
    }
    if !usable || tokens.held.len() >= MOST_HELD {
        turn.out.push(Action::Tell(id, Order::GiveBack(token)));
        return;
    }
    let until = lease.map(|lease| turn.now + lease);
    tokens.held.push(Leased { token, until, reserved });
    // Shares with reserved instances go first, as at the worker, then the payer of the reservation.
    (turn.for_reserved, turn.met) = (reserved, met);
    if contended {
        if !use_at_once(state, turn, key, token) {
            // Late work could not use it. An immediate reservation would bring it back at once.
            restore_reservations(state, turn, key, late);
        }
    } else {
        keep_token(state, turn, key, until);
    }
    (turn.for_reserved, turn.met) = (false, None);
}

/// Holds a token until it is used or its lease expires.
fn keep_token(state: &mut State, turn: &mut Turn, key: InstanceKey, until: Option<Time>) {
    let Some(tokens) = &mut state.instances.at_mut(key).tokens else { return };
    if let Some(until) = until
        && tokens.watched.is_none_or(|watched| watched <= turn.now)
    {
        tokens.watched = Some(until);
        state.timers.set(until, Timer::Lease(key));
    }
    refresh(state, turn, key);
    fill(state, turn, key);
}

/// Uses a token for urgent work or returns it, because other frontends wait. Returns whether it was used.
fn use_at_once(state: &mut State, turn: &mut Turn, key: InstanceKey, token: Token) -> bool {
    let is_held = |instance: &Instance| {
        instance.tokens.as_ref().is_some_and(|tokens| tokens.held.iter().any(|held| held.token == token))
    };
    refresh(state, turn, key);
    let mut used = true;
    while is_held(state.instances.at(key)) {
        if !take_urgent(state, turn, key) && !take_redundancy(state, turn, key) {
            give_back(state, turn, key, |held| held.token == token);
            used = false;
        }
    }
    refresh(state, turn, key);
    used
}

/// Returns a recalled token.
pub(crate) fn token_recalled(state: &mut State, turn: &mut Turn, id: InstanceId, token: Token) {
    if let Some(key) = state.instance_names.get(id) {
        give_back(state, turn, key, |held| held.token == token);
        refresh(state, turn, key);
    }
}

/// Returns tokens whose lease expired.
pub(crate) fn lease_is_over(state: &mut State, turn: &mut Turn, key: InstanceKey) {
    let now = turn.now;
    give_back(state, turn, key, |held| held.until.is_some_and(|until| until <= now));
    let Some(tokens) = state.instances.get_mut(key).and_then(|instance| instance.tokens.as_mut()) else {
        return;
    };
    tokens.watched = tokens.held.iter().filter_map(|held| held.until).min();
    if let Some(until) = tokens.watched {
        state.timers.set(until, Timer::Lease(key));
    }
    refresh(state, turn, key);
}

/// Updates the jobs of other frontends at an instance.
pub(crate) fn held_elsewhere(state: &mut State, turn: &mut Turn, id: InstanceId, elsewhere: Elsewhere) {
    let Some(key) = state.instance_names.get(id) else { return };
    let before = std::mem::replace(&mut state.instances.at_mut(key).elsewhere, elsewhere);
    state.crowded = state.crowded + u32::from(elsewhere.jobs > 0) - u32::from(before.jobs > 0);
    state.abroad = state.abroad + u32::from(!elsewhere.home) - u32::from(!before.home);
    if before.jobs > 0 && elsewhere.jobs == 0 {
        state.instances.at_mut(key).released_at = turn.now;
    }
    refresh(state, turn, key);
    fill(state, turn, key);
    // Waiting work may have begun to wait when no other frontend was known.
    if elsewhere.jobs > 0 {
        limit_neighbour_waits_of(state, turn, key);
    }
}

/// Gives work that waited long enough to the instances with the fewest jobs, one each.
pub(crate) fn neighbour_wait_is_over(state: &mut State, turn: &mut Turn, key: PoolKey) {
    let Some(pool) = state.pools.get_mut(key) else { return };
    pool.bears_neighbours = false;
    let takes = |serves: &Serves| serves.takes_queries() || serves.is_apart() && serves.takes_stand_ins();
    let serves = |instance: &Instance| instance.serves(key).is_some_and(takes);
    let mut filled: Vec<_> = state
        .instances
        .iter()
        .filter(|(_, instance)| instance.others_fill_it() && serves(instance))
        .map(|(key, instance)| (instance.jobs.len() + usize::from(instance.elsewhere.jobs), key))
        .collect();
    // Frontends whose wait ends together must not begin with the same instance.
    if !filled.is_empty() {
        let from = (state.random() * filled.len() as f64) as usize;
        filled.rotate_left(from);
    }
    filled.sort_by_key(|(held, _)| *held);
    for (_, instance) in filled {
        if !has_pressing_work(state, key) {
            return;
        }
        // An instance that takes nothing may only be unsuitable.
        take_urgent(state, turn, instance);
    }
    if has_pressing_work(state, key) {
        limit_neighbour_wait(state, turn, key);
    }
}
