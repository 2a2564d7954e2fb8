//! Traces the steps of a query, and sets the timer of a held-back answer.

use crate::api::{Action, Step, Time};
use crate::state::State;
use crate::state::keys::QueryKey;
use crate::state::timers::Timer;
use crate::turn::Turn;

/// Traces a step of a query, if queries are traced.
pub(crate) fn trace(state: &State, turn: &mut Turn, key: QueryKey, step: Step) {
    if state.traced
        && let Some(query) = state.queries.get(key)
    {
        turn.out.push(Action::Trace(query.id, step));
    }
}

/// Traces the lateness of a query, once.
pub(crate) fn note_late(state: &mut State, turn: &mut Turn, key: QueryKey, after: std::time::Duration) {
    if let Some(query) = state.queries.get_mut(key)
        && !std::mem::replace(&mut query.noted_late, true)
    {
        trace(state, turn, key, Step::Late(after));
    }
}

/// Sets the timer at which a query may receive an approximate answer.
pub(crate) fn hold_back(state: &mut State, turn: &mut Turn, key: QueryKey, until: Time) {
    let query = state.queries.at_mut(key);
    if !query.held_back {
        query.held_back = true;
        state.timers.set(until, Timer::Grace(key));
        trace(state, turn, key, Step::HeldBack(until));
    }
}
