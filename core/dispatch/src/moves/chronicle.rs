//! Records ended coding groups for the console.

use crate::api::{EndedGroup, Role};
use crate::state::State;
use crate::state::group::{Group, Made, Member, Parity, Slot};
use crate::state::keys::JobKey;
use crate::turn::Turn;

/// Records a group that ended, while the console watches.
pub(crate) fn record_end(state: &mut State, turn: &Turn, group: &Group) {
    if !state.watched || !state.pools.contains(group.pool) {
        return;
    }
    let (k, parities) = (group.code.recovery.k, group.parities.len());
    let blank = k.saturating_sub(group.slots.len());
    let ended = EndedGroup {
        k: k as u8,
        parities: parities as u8,
        slots: group.slots.iter().map(worst).chain((0..blank).map(|_| '.')).collect(),
        parity: (0..parities).map(|index| parity_letter(state, group, index)).collect(),
        filled: group.closed.unwrap_or(turn.now).since(group.opened),
        useful: group.over.unwrap_or(turn.now).since(group.opened),
    };
    state.pools.at_mut(group.pool).chronicle.ended(ended);
}

fn parity_letter(state: &State, group: &Group, index: usize) -> char {
    let runs = |job: &JobKey| {
        let role = state.jobs.get(*job).map(|job| job.role);
        matches!(role, Some(Role::Parity(_, of)) if usize::from(of) == index)
    };
    match group.parities[index] {
        Parity::In(_) => 'i',
        Parity::Lost => 'x',
        Parity::Coming if group.jobs.iter().any(runs) => 'l',
        Parity::Coming => 'n',
    }
}

/// The letter of a slot: the worst of its rows.
fn worst(slot: &Slot) -> char {
    let rank = |letter: &char| "xurdp".find(*letter);
    slot.members.iter().map(letter).min_by_key(rank).unwrap_or('.')
}

fn letter(member: &Member) -> char {
    match member.made {
        Some(Made::Given) => 'r',
        Some(Made::Spare) => 'd',
        _ if member.prediction.is_some() => 'p',
        Some(Made::Unsure) => 'u',
        None => 'x',
    }
}
