//! Outputs of coding groups: parities, reconstructions and comparisons.
//!
//! A late query is answered by the reconstruction from the other outputs of its group. With detection on, the
//! outputs of a group are kept until all arrive or the group is old, and its parities run even if all queries are
//! answered. The driver compares them off the dispatch path and reports for every prediction whether the parities
//! agree.

use smallvec::SmallVec;

use crate::api::{Action, Answer, Comparison, GroupId, QueryId, Recovery, Role, Unsure, Verdict};
use crate::moves::answer::answer;
use crate::moves::group::{close, finish, finish_if_useless, unwatch, wrap_up};
use crate::moves::judge::{Compared, record_comparison};
use crate::moves::line_up::add_extra;
use crate::moves::tell::hold_back;
use crate::placing::extras::place_extras;
use crate::reactions::again::{Ask, hedge, run_on_deployed};
use crate::rules::lateness::{grace, last_moment};
use crate::state::State;
use crate::state::arena::Key;
use crate::state::extra::{Extra, ExtraLine, Purpose};
use crate::state::group::{Decoding, Member, Parity, Stage, Watch};
use crate::state::job::Job;
use crate::state::keys::{GroupKey, JobKey, Keys, QueryKey};
use crate::turn::Turn;

/// The outcome of decoding a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reconstruction {
    /// A prediction, with its confidence if the code gives one.
    Made {
        confidence: Option<f32>,
    },
    Failed,
}

/// Adds the parity jobs of an encoded group.
pub(crate) fn encoded(state: &mut State, turn: &mut Turn, key: GroupKey) {
    let Some(group) = state.groups.get_mut(key).filter(|group| group.pending > 0) else { return };
    group.pending -= 1;
    if group.stage == Stage::Over {
        wrap_up(state, turn, key);
        return;
    }
    let (pool_key, at_once) = (group.pool, group.code.at_once);
    let parities = group.parities.len() as u8;
    let class = if at_once { ExtraLine::Urgent } else { ExtraLine::Spare };
    for index in 0..parities {
        let pool = state.pools.at_mut(pool_key);
        if pool.spare.len() >= pool.settings.spare_limit.get() as usize {
            pool.counters.parities_unsent += 1;
            state.groups.at_mut(key).parities[usize::from(index)] = Parity::Lost;
            continue;
        }
        let extra = Extra {
            role: Role::Parity(key.id(), index),
            rows: Keys::new(),
            avoid: None,
            purpose: Purpose::Spare,
        };
        add_extra(state, turn, pool_key, class, extra);
    }
    compare(state, turn, key);
    place_extras(state, turn, pool_key, class);
}

/// Ends a group that the driver could not encode.
pub(crate) fn encoding_failed(state: &mut State, turn: &mut Turn, key: GroupKey) {
    let Some(group) = state.groups.get_mut(key).filter(|group| group.pending > 0) else { return };
    group.pending -= 1;
    finish(state, turn, key);
    wrap_up(state, turn, key);
}

/// Closes or ends an open group at its maximum age.
pub(crate) fn group_is_old(state: &mut State, turn: &mut Turn, key: GroupKey) {
    let Some(group) = state.groups.get(key).filter(|group| group.stage == Stage::Open) else { return };
    let pool = state.pools.at(group.pool);
    if group.slots.len() >= 2 && pool.settings.coding.parm_plus.partial_groups && !pool.removed {
        close(state, turn, key);
    } else {
        finish(state, turn, key);
    }
}

/// Notes a parity output.
pub(crate) fn parity_completed(state: &mut State, turn: &mut Turn, key: JobKey, job: &Job, index: u8) {
    let Some(group_key) = job.group else { return };
    match state.groups.get_mut(group_key).filter(|group| group.stage == Stage::Coded) {
        Some(group) => {
            group.parities[usize::from(index)] = Parity::In(key);
            group.outputs.push(key);
            recover(state, turn, group_key);
            compare(state, turn, group_key);
        }
        None => {
            state.pools.at_mut(job.pool).counters.parities_late += 1;
            turn.out.push(Action::Release(key.id()));
        }
    }
}

/// Notes a lost parity.
pub(crate) fn parity_lost(state: &mut State, turn: &mut Turn, job: &Job, index: u8) {
    if let Some(group_key) = job.group
        && let Some(group) = state.groups.get_mut(group_key)
    {
        group.parities[usize::from(index)] = Parity::Lost;
        compare(state, turn, group_key);
    }
}

/// Decodes the predictions that can be recovered and have waited long enough; sets timers for others.
pub(crate) fn recover(state: &mut State, turn: &mut Turn, key: GroupKey) {
    let Some(group) = state.groups.get(key).filter(|group| group.stage == Stage::Coded) else { return };
    let mut found: SmallVec<[QueryKey; 4]> = SmallVec::new();
    for (at, slot) in group.slots.iter().enumerate() {
        for (row, member) in slot.members.iter().enumerate() {
            let waits = member.wants_help() && member.decoding == Decoding::No;
            if waits && state.queries.contains(member.query) && group.recoverable(at as u8, row as u16) {
                found.push(member.query);
            }
        }
    }
    found.into_iter().for_each(|query| decode_in_time(state, turn, query));
}

/// Decodes a query's prediction, or sets the timer of its grace.
pub(crate) fn decode_in_time(state: &mut State, turn: &mut Turn, key: QueryKey) {
    decode(state, turn, key, false);
}

/// Decodes a query's prediction without a grace, because no other answer will come.
pub(crate) fn decode_at_once(state: &mut State, turn: &mut Turn, key: QueryKey) {
    decode(state, turn, key, true);
}

fn decode(state: &mut State, turn: &mut Turn, key: QueryKey, at_once: bool) {
    let Some(place) = state.queries.get(key).and_then(|query| query.place) else { return };
    let Some(group) = state.groups.get_mut(place.group).filter(|group| group.stage == Stage::Coded) else {
        return;
    };
    if !group.member(place).wants_help() || group.member(place).decoding != Decoding::No {
        return;
    }
    if !group.recoverable(place.slot, place.row) {
        return;
    }
    let pool = state.pools.at(group.pool);
    let query = state.queries.at_mut(key);
    let from = (query.arrived + grace(pool)).min(last_moment(query));
    if from > turn.now && !at_once && !query.left {
        hold_back(state, turn, key, from);
        return;
    }
    let (parts, members) = group.parts(place.row);
    group.member(place).decoding = Decoding::Asked;
    group.pending += 1;
    let (group, query) = (place.group.id(), query.id);
    turn.out.push(Action::Decode(Box::new(Recovery { group, query, slot: place.slot, members, parts })));
}

/// Reacts to a decoded slot, or to a failed decoding.
pub(crate) fn decoded(
    state: &mut State,
    turn: &mut Turn,
    id: GroupId,
    query: QueryId,
    outcome: Reconstruction,
) {
    let key = Key::from(id);
    let Some(group) = state.groups.get_mut(key).filter(|group| group.pending > 0) else { return };
    let (pool_key, code) = (group.pool, group.code);
    let asked = |member: &&mut Member| member.id == query && member.decoding == Decoding::Asked;
    let Some(member) = group.slots.iter_mut().flat_map(|slot| &mut slot.members).find(asked) else {
        return;
    };
    member.decoding = Decoding::Useless;
    let (waiting, alive) = (member.query, state.queries.contains(member.query));
    let least = code.min_confidence.get() as f32;
    // Outputs other than classes have no confidence and are only given if the least is 0.
    let sure = |confidence: Option<f32>| confidence.unwrap_or(0.0) >= least;
    group.pending -= 1;
    if let Some(pool) = state.pools.get_mut(pool_key) {
        pool.counters.reconstructions += u64::from(outcome != Reconstruction::Failed);
    }
    if alive {
        let counters = &mut state.pools.at_mut(pool_key).counters;
        match outcome {
            Reconstruction::Made { confidence } if sure(confidence) => {
                counters.reconstructions_served += 1;
                answer(state, turn, waiting, Answer::Reconstructed { group: id, confidence });
            }
            _ => {
                counters.reconstructions_unsure += u64::from(outcome != Reconstruction::Failed);
                if code.unsure == Unsure::Hedge {
                    hedge(state, turn, pool_key, Keys::from_slice(&[waiting]), Ask::First, None);
                }
                // Its attempts may have failed before.
                run_on_deployed(state, turn, waiting);
            }
        }
    }
    finish_if_useless(state, turn, key);
    wrap_up(state, turn, key);
}

/// Requests the comparison of a group's outputs once the last of them is known.
pub(crate) fn compare(state: &mut State, turn: &mut Turn, key: GroupKey) {
    let Some(group) = state.groups.get_mut(key).filter(|group| group.stage == Stage::Coded) else {
        return;
    };
    match group.complete() {
        _ if group.watch != Watch::On => finish_if_useless(state, turn, key),
        None => unwatch(state, turn, key),
        Some(false) => {}
        Some(true) => {
            let rows = group.slots.iter().map(|slot| slot.members.len()).max().unwrap_or(0);
            let rows = (0..rows as u16).map(|row| group.all_parts(row)).collect();
            group.watch = Watch::Asked;
            group.pending += 1;
            state.pools.at_mut(group.pool).watched -= 1;
            turn.out.push(Action::Compare(Box::new(Comparison { group: key.id(), rows })));
        }
    }
}

/// Reacts to a comparison of a group's predictions with its parities.
pub(crate) fn compared(state: &mut State, turn: &mut Turn, id: GroupId, verdicts: &[Verdict]) {
    let key = Key::from(id);
    let Some(group) = state.groups.get_mut(key).filter(|group| group.watch == Watch::Asked) else {
        return;
    };
    group.watch = Watch::Off;
    group.pending -= 1;
    let pool = group.pool;
    let of = |verdict: &Verdict| {
        let member = group.slots.get(usize::from(verdict.slot))?.members.get(verdict.row as usize)?;
        Some((verdict.slot, member.by?, verdict.agrees))
    };
    let answers: SmallVec<[_; 8]> = verdicts.iter().filter_map(of).collect();
    // If no prediction agrees, the parity is as suspect as they are.
    if answers.iter().any(|(.., agrees)| *agrees) {
        for (at, (slot, instance, agrees)) in answers.iter().copied().enumerate() {
            // The model may have been unloaded meanwhile.
            let Some(known) = state.pools.get_mut(pool) else { break };
            known.counters.compared += 1;
            known.counters.disagreed += u64::from(!agrees);
            // One row of each batch counts as evidence.
            let same = |(other, by, _): &(u8, _, _)| (*other, *by) == (slot, instance);
            let is_evidence = !answers[..at].iter().any(same);
            record_comparison(state, turn, pool, Compared { instance, agrees, is_evidence });
        }
    }
    finish_if_useless(state, turn, key);
    wrap_up(state, turn, key);
}
