//! A coding group: the batches of its members, what is in of its outputs, and so what can be recovered.
//!
//! A slot holds a batch. Row `i` of the parity encodes the `i`-th query of every slot that has one, so what can be
//! recovered is decided row by row: for batches of one there is one row, and a slot is a query.

use parm_encoder::{Arrived, Recovery, Set};
use smallvec::SmallVec;

use super::arena::Key;
use super::instance::Instance;
use super::job::Job;
use super::pool::Pool;
use super::query::Query;
use super::{Fraction, GroupId, Part, Payer, QueryId, Site, Source, Time, Unsure};

/// A group from its first member until nobody needs it any more.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) pool: Key<Pool>,
    /// Who pays for its parities.
    pub(super) payer: Payer,
    pub(super) code: Code,
    pub(super) stage: Stage,
    pub(super) watch: Watch,
    /// The driver was asked to encode it, and is to be told when that may be forgotten.
    pub(super) encoded: bool,
    pub(super) slots: SmallVec<[Slot; 4]>,
    pub(super) parities: SmallVec<[Parity; 2]>,
    /// Encodings and decodings that the driver has not reported yet: until then it reads what the group holds.
    pub(super) pending: u16,
    /// Jobs that ended and whose outputs a decoder may read.
    pub(super) outputs: SmallVec<[Key<Job>; 4]>,
    /// Jobs that were started for its members, and may still run.
    pub(super) jobs: SmallVec<[Key<Job>; 4]>,
    /// Where a member or a parity is or was.
    pub(super) places: SmallVec<[(Key<Instance>, Site); 4]>,
    pub(super) opened: Time,
    /// When it was full or old.
    pub(super) closed: Option<Time>,
    /// When nobody needed it any more.
    pub(super) over: Option<Time>,
}

/// The settings that a group was opened under; it keeps them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    /// Its size, its parities, and the losses that they make good.
    pub(super) recovery: Recovery,
    pub(super) min_confidence: Fraction,
    pub(super) unsure: Unsure,
    pub(super) at_once: bool,
    /// Its predictions are kept to be compared with its parities.
    pub(super) detect: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Takes members.
    Open,
    /// Takes no more; its parities are made or under way.
    Coded,
    /// Nobody needs it; it goes when the driver has reported what is pending.
    Over,
}

/// Whether a group is kept to compare its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    Off,
    /// Until all of them are in.
    On,
    /// The driver compares them.
    Asked,
}

/// The batch of one member.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) members: SmallVec<[Member; 2]>,
}

/// A query of a batch.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: QueryId,
    pub(super) query: Key<Query>,
    /// It may be answered with a reconstruction.
    pub(super) open_minded: bool,
    /// Its prediction: a row of a job's outputs.
    pub(super) prediction: Option<(Key<Job>, u32)>,
    /// The instance that made it.
    pub(super) by: Option<Key<Instance>>,
    pub(super) decoding: Decoding,
    /// What became of its reconstruction.
    pub(super) made: Option<Made>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoding {
    No,
    Asked,
    /// It failed or was not good enough: there is no second try.
    Useless,
}

/// A reconstruction, once it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// The client got it.
    Given,
    /// It was answered before.
    Spare,
    /// It was not sure enough to be given.
    Unsure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parity {
    /// Waits for its encoding or an instance, or runs.
    Coming,
    In(Key<Job>),
    Lost,
}

/// A query's place in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) group: Key<Group>,
    pub(super) slot: u8,
    pub(super) row: u16,
}

impl Group {
    pub(super) fn new(pool: Key<Pool>, payer: Payer, code: Code, opened: Time) -> Self {
        Self {
            pool,
            payer,
            code,
            stage: Stage::Open,
            watch: Watch::Off,
            encoded: false,
            slots: SmallVec::new(),
            parities: SmallVec::from_elem(Parity::Coming, code.recovery.parities),
            pending: 0,
            outputs: SmallVec::new(),
            jobs: SmallVec::new(),
            places: SmallVec::new(),
            opened,
            closed: None,
            over: None,
        }
    }

    pub(super) fn full(&self) -> bool {
        self.slots.len() >= self.code.recovery.k
    }

    pub(super) fn member(&mut self, place: Place) -> &mut Member {
        &mut self.slots[usize::from(place.slot)].members[usize::from(place.row)]
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.slots.iter().flat_map(|slot| &slot.members)
    }

    /// Whether a member (of those whose query is unanswered, by `alive`) could still be helped.
    pub(super) fn needed(&self, alive: impl Fn(Key<Query>) -> bool) -> bool {
        self.stage != Stage::Over
            && self.parities.iter().any(|parity| *parity != Parity::Lost)
            && self.members().any(|member| member.wants_help() && alive(member.query))
    }

    /// Whether somebody would read predictions that come in: the decoder, or who compares.
    pub(super) fn reads_predictions(&self) -> bool {
        self.stage != Stage::Over && (self.code.recovery.reads_predictions() || self.code.detect)
    }

    /// Whether everything is in that there is to compare; `None` if it never will be.
    pub(super) fn complete(&self) -> Option<bool> {
        let count = |of: fn(&Parity) -> bool| self.parities.iter().filter(|parity| of(parity)).count();
        let (here, coming) = (count(|p| matches!(p, Parity::In(_))), count(|p| *p == Parity::Coming));
        let possible = self.code.recovery.parities_to_compare().is_some_and(|enough| here + coming >= enough);
        possible.then(|| coming == 0 && self.members().all(|member| member.prediction.is_some()))
    }

    /// What is in of a row.
    fn arrived(&self, row: u16) -> Arrived {
        let mut arrived = Arrived::default();
        for (slot, batch) in self.slots.iter().enumerate() {
            let Some(member) = batch.members.get(usize::from(row)) else { continue };
            arrived.members = arrived.members.with(slot);
            if member.prediction.is_some() {
                arrived.predictions = arrived.predictions.with(slot);
            }
        }
        for (index, parity) in self.parities.iter().enumerate() {
            if matches!(parity, Parity::In(_)) {
                arrived.parities = arrived.parities.with(index);
            }
        }
        arrived
    }

    /// Whether the prediction of a member follows from what is in.
    pub(super) fn recoverable(&self, slot: u8, row: u16) -> bool {
        self.code.recovery.can_recover(self.arrived(row), Set::EMPTY.with(usize::from(slot)))
    }

    /// Whether the decoder would miss the predictions of these queries.
    pub(super) fn misses(&self, rows: &[Key<Query>]) -> bool {
        let of = |member: &Member| member.prediction.is_none() && rows.contains(&member.query);
        self.reads_predictions() && self.members().any(of)
    }

    /// What the decoder reads of a row, and how many slots have such a row.
    pub(super) fn parts(&self, row: u16) -> (Vec<Part>, u8) {
        let members = self.slots.iter().filter(|slot| slot.members.len() > usize::from(row)).count();
        let mut parts = self.all_parts(row);
        if !self.code.recovery.reads_predictions() {
            parts.retain(|part| matches!(part.source, Source::Parity(_)));
        }
        (parts, members as u8)
    }

    /// What is in of a row.
    pub(super) fn all_parts(&self, row: u16) -> Vec<Part> {
        let mut parts = Vec::with_capacity(self.slots.len() + self.parities.len());
        for (slot, batch) in self.slots.iter().enumerate() {
            if let Some((job, row)) = batch.members.get(usize::from(row)).and_then(|member| member.prediction)
            {
                parts.push(Part { source: Source::Slot(slot as u8), job: job.id(), row });
            }
        }
        for (index, parity) in self.parities.iter().enumerate() {
            if let Parity::In(job) = parity {
                parts.push(Part { source: Source::Parity(index as u8), job: job.id(), row: u32::from(row) });
            }
        }
        parts
    }
}

impl Member {
    /// It lacks a prediction, takes a reconstruction, and none was tried in vain.
    pub(super) fn wants_help(&self) -> bool {
        self.prediction.is_none() && self.open_minded && self.decoding != Decoding::Useless
    }
}

impl Key<Group> {
    /// The driver's name for the group.
    pub(super) fn id(self) -> GroupId {
        GroupId(self.raw())
    }
}

impl From<GroupId> for Key<Group> {
    fn from(id: GroupId) -> Self {
        Self::from_raw(id.0)
    }
}
