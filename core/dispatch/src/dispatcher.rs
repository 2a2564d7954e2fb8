//! The dispatcher: one event in, any number of actions out.
//!
//! [`Dispatcher::on_event`] reacts to the event, fires due timers and requests the next wake. The work is divided
//! into layers. Each imports only from those before it, which `tests/it/layers.rs` checks:
//!
//! - `api`: events, actions, ids and settings.
//! - `measure`: statistics and budgets that know times and settings only.
//! - `policy`: redundancy policies.
//! - `state`: queries, jobs, groups, instances and pools.
//! - `turn`: the state of one event.
//! - `rules`: decisions, which change nothing.
//! - `moves`: changes of the state, each with its actions.
//! - `placing`: work finds an instance, in one order of urgency.
//! - `reactions`: the consequences of each event.
//!
//! The dispatcher cannot fail: an event about something that is gone is ignored, because the driver may report it
//! late.

use std::mem;

use crate::api::{Actions, Event, Settings, Time};
use crate::moves::reserve::reserve;
use crate::placing::place_unplaced;
use crate::reactions::group::Reconstruction;
use crate::reactions::{group, instance, job, pool, query, stand_in, timer, tokens};
use crate::rules::check::check;
use crate::state::State;
use crate::state::keys::{GroupKey, JobKey};
use crate::turn::Turn;

/// Decides which instance runs which job, and the answer of each query.
pub struct Dispatcher {
    pub(crate) state: State,
    /// The time of the last event.
    pub(crate) now: Time,
    /// The requested wake that has not come yet.
    wake: Option<Time>,
    /// Events since the last check of the whole state.
    #[cfg(debug_assertions)]
    unchecked: usize,
}

impl Dispatcher {
    /// A dispatcher without instances. The same seed and events lead to the same actions.
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            state: State::new(settings, seed),
            now: Time::ZERO,
            wake: None,
            #[cfg(debug_assertions)]
            unchecked: 0,
        }
    }

    /// Reacts to an event by adding to `actions`. Time never goes back: an earlier `now` counts as the last one.
    pub fn on_event(&mut self, now: Time, event: Event, actions: &mut Actions) {
        self.now = self.now.max(now);
        #[cfg(test)]
        self.panics_as_planted(&event);
        let mut turn = Turn::new(self.now, mem::take(actions));
        let state = &mut self.state;
        if let Some(at) = self.wake.filter(|at| *at <= turn.now) {
            turn.behind = turn.now.since(at);
            self.wake = None;
            state.timers.look_again();
            timer::fire_timers(state, &mut turn);
        }
        react(state, &mut turn, event);
        place_unplaced(state, &mut turn);
        if state.timers.new_is_due(turn.now) {
            timer::fire_timers(state, &mut turn);
            place_unplaced(state, &mut turn);
        }
        if !state.asking.is_empty() {
            reserve(state, &mut turn);
        }
        if state.timers.worth_a_look(self.wake) {
            self.ask_for_wake(&mut turn);
        }
        *actions = turn.out;
        #[cfg(debug_assertions)]
        self.check_now_and_then();
    }

    /// Requests an earlier wake. A later one can wait until the requested one came: its timer may be gone, and a
    /// spurious wake costs less than a new request for each answered query.
    fn ask_for_wake(&mut self, turn: &mut Turn) {
        let Some(at) = timer::next_wake(&mut self.state) else { return };
        if self.wake.is_none_or(|asked| at < asked) {
            self.wake = Some(at);
            turn.out.push(crate::api::Action::WakeAt(at));
        }
    }

    /// Finds a query without a job, timer or line, or an output without a reader.
    pub fn check(&self) -> Result<(), String> {
        check(&self.state, &Turn::new(self.now, Actions::new()))
    }

    /// Checks after every so many events, in debug builds.
    #[cfg(debug_assertions)]
    fn check_now_and_then(&mut self) {
        self.unchecked += 1;
        if self.unchecked > self.state.queries.len() + self.state.jobs.len() {
            self.unchecked = 0;
            if let Err(lost) = self.check() {
                panic!("internal error: the dispatcher lost track of something: {lost}");
            }
        }
    }

    /// A fault for the tests of replays.
    #[cfg(test)]
    fn panics_as_planted(&self, event: &Event) {
        let planted = crate::replay::PLANTED.get().is_some_and(|jobs| self.state.jobs.len() == jobs);
        assert!(
            !(planted && matches!(event, Event::QueryArrived(_))),
            "planted: at {:?} by {event:?}",
            self.now
        );
    }
}

fn react(state: &mut State, turn: &mut Turn, event: Event) {
    match event {
        Event::QueryArrived(query) => query::arrived(state, turn, query),
        Event::QueryCancelled(id) => query::cancelled(state, turn, id),
        Event::JobCompleted(id) => job::completed(state, turn, JobKey::from(id)),
        Event::JobFailed(id, failure) => job::failed(state, turn, JobKey::from(id), failure),
        Event::InstanceJoined(id, spec) => instance::joined(state, turn, id, spec),
        Event::TokensOffered(id) => tokens::tokens_offered(state, turn, id),
        Event::SlotsStated(id, slots) => tokens::slots_stated(state, turn, id, slots),
        Event::TokenGranted(id, grant) => tokens::token_granted(state, turn, id, grant),
        Event::TokenRecalled(id, token) => tokens::token_recalled(state, turn, id, token),
        Event::TokensShared(id, alone) => tokens::tokens_shared(state, turn, id, alone),
        Event::TokensEnded(id) => tokens::tokens_ended(state, turn, id),
        Event::HeldElsewhere(id, elsewhere) => tokens::held_elsewhere(state, turn, id, elsewhere),
        Event::InstanceDraining(id) => instance::draining(state, turn, id),
        Event::InstanceLeft(id) => instance::left(state, turn, id),
        Event::ProbeAnswered(id, pool, works) => instance::probe_answered(state, turn, id, pool, works),
        Event::SettingsChanged { pool, settings, in_force } => {
            pool::settings_changed(state, turn, pool, *settings, *in_force);
        }
        Event::VersionAdded { pool, predecessor } => pool::version_added(state, turn, pool, predecessor),
        Event::PoolRemoved(id) => pool::pool_removed(state, turn, id),
        Event::GroupEncoded(id) => group::encoded(state, turn, GroupKey::from(id)),
        Event::GroupFailed(id) => group::encoding_failed(state, turn, GroupKey::from(id)),
        Event::SlotDecoded { group, query, confidence } => {
            group::decoded(state, turn, group, query, Reconstruction::Made { confidence });
        }
        Event::SlotFailed { group, query } => {
            group::decoded(state, turn, group, query, Reconstruction::Failed);
        }
        Event::Compared(id, verdicts) => group::compared(state, turn, id, &verdicts),
        Event::Judged(query, output, judgement) => stand_in::judged(state, turn, query, output, judgement),
        Event::Checked(pair, agrees) => stand_in::checked(state, turn, pair, agrees),
        Event::StandInCost(pool, cost) => stand_in::cost_reported(state, turn, pool, cost),
        Event::TimerFired => {}
    }
}
