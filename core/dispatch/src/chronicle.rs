//! How coding groups ended, for somebody who watches: the last few of each pool, since they were last asked for.
//!
//! Nobody needs a group after its end, so nothing of this is kept unless somebody watches.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use smallvec::SmallVec;

use super::Role;
use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::group::{Group, Made, Member, Parity, Slot};
use super::job::Job;

/// Most groups of a pool that are kept until somebody asks.
const KEPT: usize = 16;

/// A group that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedGroup {
    /// Members that it has room for.
    pub k: u8,
    /// Parities.
    pub parities: u8,
    /// A letter for each slot: `p` predicted, `r` reconstructed and given, `d` decoded and not needed, `u` decoded and not
    /// sure enough, `x` neither, `.` blank.
    pub slots: String,
    /// A letter for each parity: `i` in, `l` in when nobody needed it, `n` never sent, `x` lost.
    pub parity: String,
    /// From its first member until it was full or old.
    pub filled: Duration,
    /// From its first member until nobody needed it.
    pub useful: Duration,
}

/// What is known of a pool's groups since somebody last asked.
#[derive(Debug, Default)]
pub(super) struct Chronicle {
    ended: VecDeque<EndedGroup>,
    made: SmallVec<[(u8, u32); 2]>,
}

impl Chronicle {
    /// A group of `k` was encoded.
    pub(super) fn made(&mut self, k: u8) {
        match self.made.iter_mut().find(|(of, _)| *of == k) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.made.push((k, 1)),
        }
    }

    /// The groups that ended, and how many of each size were encoded; begins anew.
    pub(super) fn take(&mut self) -> (Vec<EndedGroup>, Vec<(u8, u32)>) {
        let mut made = mem::take(&mut self.made).into_vec();
        made.sort_unstable();
        (mem::take(&mut self.ended).into(), made)
    }
}

impl Dispatcher {
    /// From now on somebody asks for the groups that end, or nobody does any more.
    pub fn watch_groups(&mut self, watched: bool) {
        self.watched = watched;
    }

    /// A group is forgotten.
    pub(super) fn chronicle(&mut self, group: &Group) {
        if !self.watched || !self.pools.contains(group.pool) {
            return;
        }
        let (k, parities) = (group.code.recovery.k, group.parities.len());
        let blank = k.saturating_sub(group.slots.len());
        let ended = EndedGroup {
            k: k as u8,
            parities: parities as u8,
            slots: group.slots.iter().map(worst).chain((0..blank).map(|_| '.')).collect(),
            parity: (0..parities).map(|index| self.parity_letter(group, index)).collect(),
            filled: group.closed.unwrap_or(self.now).since(group.opened),
            useful: group.over.unwrap_or(self.now).since(group.opened),
        };
        let kept = &mut self.pools[group.pool].chronicle.ended;
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(ended);
    }

    fn parity_letter(&self, group: &Group, index: usize) -> char {
        let runs = |job: &Key<Job>| {
            let role = self.jobs.get(*job).map(|job| job.role);
            matches!(role, Some(Role::Parity(_, of)) if usize::from(of) == index)
        };
        match group.parities[index] {
            Parity::In(_) => 'i',
            Parity::Lost => 'x',
            Parity::Coming if group.jobs.iter().any(runs) => 'l',
            Parity::Coming => 'n',
        }
    }
}

/// The letter of a slot: of several rows, that of the worst.
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
