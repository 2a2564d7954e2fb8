//! Timers that are due, and the next wake.

use crate::api::Time;
use crate::moves::group::unwatch;
use crate::moves::reserve::widen_reservations;
use crate::reactions::group::group_is_old;
use crate::reactions::instance::{probe_due, warmed_up};
use crate::reactions::late::{late, silence_timer_fired, still_late};
use crate::reactions::outage::outage_timer_fired;
use crate::reactions::pool::{batch_is_old, faster_is_late, reject_without_instance, retry_anywhere};
use crate::reactions::query::{expired, grace_is_over};
use crate::reactions::stand_in::query_is_late;
use crate::reactions::tokens::{lease_is_over, neighbour_wait_is_over};
use crate::state::State;
use crate::state::timers::Timer;
use crate::turn::Turn;

/// Reacts to every timer whose time has come.
pub(crate) fn fire_timers(state: &mut State, turn: &mut Turn) {
    while let Some(timer) = state.timers.due(turn.now) {
        match timer {
            Timer::Deadline(query) => expired(state, turn, query),
            Timer::Late(job) => late(state, turn, job),
            Timer::StillLate(job) => still_late(state, turn, job),
            Timer::Batch(pool) => batch_is_old(state, turn, pool),
            Timer::Faster(pool) => faster_is_late(state, turn, pool),
            Timer::NoInstance(pool) => reject_without_instance(state, turn, pool),
            Timer::Age(group) => group_is_old(state, turn, group),
            Timer::Watch(group) => unwatch(state, turn, group),
            Timer::Overdue(query) => query_is_late(state, turn, query),
            Timer::Grace(query) => grace_is_over(state, turn, query),
            Timer::Probe(instance) => probe_due(state, turn, instance),
            Timer::Warm(instance) => warmed_up(state, turn, instance),
            Timer::Lease(instance) => lease_is_over(state, turn, instance),
            Timer::Widen(pool) => widen_reservations(state, turn, pool),
            Timer::Neighbours(pool) => neighbour_wait_is_over(state, turn, pool),
            Timer::Elsewhere(pool) => retry_anywhere(state, turn, pool),
            Timer::Silence(instance) => silence_timer_fired(state, turn, instance),
            Timer::Outage(pool) => outage_timer_fired(state, turn, pool),
        }
    }
}

/// The time of the earliest live timer.
pub(crate) fn next_wake(state: &mut State) -> Option<Time> {
    let (queries, jobs, pools) = (&state.queries, &state.jobs, &state.pools);
    let (groups, instances) = (&state.groups, &state.instances);
    state.timers.earliest(|timer| match timer {
        Timer::Deadline(query) | Timer::Grace(query) | Timer::Overdue(query) => queries.contains(query),
        Timer::Age(group) | Timer::Watch(group) => groups.contains(group),
        Timer::Late(job) | Timer::StillLate(job) => jobs.contains(job),
        Timer::Batch(pool) | Timer::NoInstance(pool) | Timer::Faster(pool) => pools.contains(pool),
        Timer::Elsewhere(pool) | Timer::Widen(pool) | Timer::Neighbours(pool) | Timer::Outage(pool) => {
            pools.contains(pool)
        }
        Timer::Probe(instance) | Timer::Warm(instance) => instances.contains(instance),
        Timer::Lease(instance) | Timer::Silence(instance) => instances.contains(instance),
    })
}
