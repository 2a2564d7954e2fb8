//! Outputs of a group come in, and a late query is answered from the others'.

use smallvec::SmallVec;

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::group::{Decoding, Group, Made, Parity, Stage};
use super::job::Job;
use super::outcome::Ask;
use super::query::{Keys, Query};
use super::timers::Timer;
use super::{Action, Answer, GroupId, QueryId, Recovery, Step, Time, Unsure};

/// What came of decoding a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reconstruction {
    /// A prediction, and how sure it is where the code says so.
    Made {
        confidence: Option<f32>,
    },
    Failed,
}

impl Dispatcher {
    /// Notes the predictions of a job in the group of its queries. Returns whether the group keeps the job's outputs.
    pub(super) fn note_predictions(&mut self, key: Key<Job>, job: &Job) -> bool {
        let Some(group) = job.group.and_then(|group| self.groups.get_mut(group)) else { return false };
        let mut new = false;
        for member in group.slots.iter_mut().flat_map(|slot| &mut slot.members) {
            let row = job.rows.iter().position(|query| *query == member.query);
            if let (Some(row), None) = (row, member.prediction) {
                (member.prediction, member.by) = (Some((key, row as u32)), Some(job.instance));
                new = true;
            }
        }
        // An open group is yet to be encoded, from inputs that the driver keeps with the job.
        let keeps = new && (group.stage == Stage::Open || group.reads_predictions());
        if keeps {
            group.outputs.push(key);
        }
        keeps
    }

    /// A parity output is in.
    pub(super) fn parity_completed(&mut self, key: Key<Job>, job: &Job, index: u8) {
        let Some(group_key) = job.group else { return };
        match self.groups.get_mut(group_key).filter(|group| group.stage == Stage::Coded) {
            Some(group) => {
                group.parities[usize::from(index)] = Parity::In(key);
                group.outputs.push(key);
                self.recover(group_key);
                self.compare(group_key);
            }
            None => {
                self.pools[job.pool].counters.parities_late += 1;
                self.out.push(Action::Release(key.id()));
            }
        }
    }

    /// A parity will not come.
    pub(super) fn parity_lost(&mut self, job: &Job, index: u8) {
        if let Some(group_key) = job.group
            && let Some(group) = self.groups.get_mut(group_key)
        {
            group.parities[usize::from(index)] = Parity::Lost;
            self.compare(group_key);
        }
    }

    /// Decodes what can be decoded by now and has waited long enough; sets timers for what has not.
    pub(super) fn recover(&mut self, key: Key<Group>) {
        let Some(group) = self.groups.get(key).filter(|group| group.stage == Stage::Coded) else { return };
        let mut found: SmallVec<[Key<Query>; 4]> = SmallVec::new();
        for (at, slot) in group.slots.iter().enumerate() {
            for (row, member) in slot.members.iter().enumerate() {
                let waits = member.wants_help() && member.decoding == Decoding::No;
                if waits && self.queries.contains(member.query) && group.recoverable(at as u8, row as u16) {
                    found.push(member.query);
                }
            }
        }
        found.into_iter().for_each(|query| self.decode_in_time(query));
    }

    /// Decodes a query's prediction, or sets a timer for when its grace is over.
    pub(super) fn decode_in_time(&mut self, key: Key<Query>) {
        let Some(place) = self.queries.get(key).and_then(|query| query.place) else { return };
        let Some(group) = self.groups.get_mut(place.group).filter(|group| group.stage == Stage::Coded) else {
            return;
        };
        if !group.member(place).wants_help() || group.member(place).decoding != Decoding::No {
            return;
        }
        if !group.recoverable(place.slot, place.row) {
            return;
        }
        let pool = &self.pools[group.pool];
        let query = &mut self.queries[key];
        let from = query.arrived + pool.policy.grace(pool.response.reading());
        if from > self.now {
            self.hold_back(key, from);
            return;
        }
        let (parts, members) = group.parts(place.row);
        group.member(place).decoding = Decoding::Asked;
        group.pending += 1;
        let (group, query) = (place.group.id(), query.id);
        self.out.push(Action::Decode(Box::new(Recovery { group, query, slot: place.slot, members, parts })));
    }

    /// Wakes for a query when it may be given something else than its prediction.
    pub(super) fn hold_back(&mut self, key: Key<Query>, until: Time) {
        let query = &mut self.queries[key];
        if !query.held_back {
            query.held_back = true;
            self.timers.set(until, Timer::Grace(key));
            self.trace(key, Step::HeldBack(until));
        }
    }

    /// A query's grace is over.
    pub(super) fn grace_is_over(&mut self, key: Key<Query>) {
        let Some(query) = self.queries.get_mut(key) else { return };
        query.held_back = false;
        self.answer_from_backup(key);
        self.answer_from_stand_in(key);
        self.decode_in_time(key);
    }

    /// The driver has decoded a slot, or could not.
    pub(super) fn decoded(&mut self, id: GroupId, query: QueryId, outcome: Reconstruction) {
        let key = Key::from(id);
        let Some(group) = self.groups.get_mut(key).filter(|group| group.pending > 0) else { return };
        let (pool_key, code) = (group.pool, group.code);
        let asked =
            |member: &&mut super::group::Member| member.id == query && member.decoding == Decoding::Asked;
        let Some(member) = group.slots.iter_mut().flat_map(|slot| &mut slot.members).find(asked) else {
            return;
        };
        member.decoding = Decoding::Useless;
        let (waiting, alive) = (member.query, self.queries.contains(member.query));
        let least = code.min_confidence.get() as f32;
        // What is no class has no confidence: nobody can say that it has the least that is asked for.
        let sure = |confidence: Option<f32>| confidence.unwrap_or(0.0) >= least;
        member.made = match outcome {
            Reconstruction::Failed => None,
            Reconstruction::Made { .. } if !alive => Some(Made::Spare),
            Reconstruction::Made { confidence } if sure(confidence) => Some(Made::Given),
            Reconstruction::Made { .. } => Some(Made::Unsure),
        };
        group.pending -= 1;
        if let Some(pool) = self.pools.get_mut(pool_key) {
            pool.counters.reconstructions += u64::from(outcome != Reconstruction::Failed);
        }
        if alive {
            let counters = &mut self.pools[pool_key].counters;
            match outcome {
                Reconstruction::Made { confidence } if sure(confidence) => {
                    counters.reconstructions_served += 1;
                    self.answer(waiting, Answer::Reconstructed { group: id, confidence });
                }
                _ => {
                    counters.reconstructions_unsure += u64::from(outcome != Reconstruction::Failed);
                    if code.unsure == Unsure::Hedge {
                        self.hedge(pool_key, Keys::from_slice(&[waiting]), Ask::First, None);
                    }
                }
            }
        }
        self.finish_if_useless(key);
        self.wrap_up(key);
    }

    /// Whether a reconstruction of this query is at hand or asked for.
    pub(super) fn covered(&self, key: Key<Query>) -> bool {
        let Some(place) = self.queries.get(key).and_then(|query| query.place) else { return false };
        let Some(group) = self.groups.get(place.group).filter(|group| group.stage == Stage::Coded) else {
            return false;
        };
        let member = &group.slots[usize::from(place.slot)].members[usize::from(place.row)];
        member.wants_help() && group.recoverable(place.slot, place.row)
    }
}
