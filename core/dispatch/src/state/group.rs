//! A coding group: the batches of its members, the outputs that arrived, and what they recover.
//!
//! A slot holds a batch. Row `i` of a parity encodes the `i`-th query of every slot that has one. So recovery is
//! decided row by row. With batches of one query there is one row, and a slot is a query.

use parm_encoder::{Arrived, Set};
use smallvec::SmallVec;

use crate::api::{Fraction, Part, Payer, QueryId, Site, Source, Time, Unsure};
use crate::state::keys::{GroupKey, InstanceKey, JobKey, PoolKey, QueryKey};

/// A group from its first member until it is no longer needed.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) pool: PoolKey,
    /// The account that pays for its parities.
    pub(crate) payer: Payer,
    pub(crate) code: Code,
    pub(crate) stage: Stage,
    pub(crate) watch: Watch,
    /// The driver encodes it and must be told when to forget it.
    pub(crate) encoded: bool,
    pub(crate) slots: SmallVec<[Slot; 4]>,
    /// The size of its largest batch, which its parities have too.
    pub(crate) size: u32,
    pub(crate) parities: SmallVec<[Parity; 2]>,
    /// Encodings, decodings and comparisons in progress. Until they end the driver reads the group's outputs.
    pub(crate) pending: u32,
    /// Ended jobs whose outputs a decoder may read.
    pub(crate) outputs: SmallVec<[JobKey; 4]>,
    /// Jobs of its members and parities that may still run.
    pub(crate) jobs: SmallVec<[JobKey; 4]>,
    /// Instances and sites of its members and parities.
    pub(crate) places: SmallVec<[(InstanceKey, Site); 4]>,
    pub(crate) opened: Time,
}

/// The settings under which a group was opened; it keeps them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code {
    /// Its size, its parities, and the losses that they recover.
    pub(crate) recovery: parm_encoder::Recovery,
    pub(crate) min_confidence: Fraction,
    pub(crate) unsure: Unsure,
    pub(crate) at_once: bool,
    /// Its predictions are compared with its parities.
    pub(crate) detect: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Takes members.
    Open,
    /// Closed; its parities are made or being made.
    Coded,
    /// No longer needed; it is removed when the driver has reported all pending work.
    Over,
}

/// Whether a group is kept to compare its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Off,
    /// Until all outputs have arrived.
    On,
    /// The driver compares them.
    Asked,
}

/// The batch of one member.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) members: SmallVec<[Member; 2]>,
}

/// A query of a batch.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: QueryId,
    pub(crate) query: QueryKey,
    /// It may be answered with a reconstruction.
    pub(crate) accepts_approximate: bool,
    /// Its prediction: a row of a job's outputs.
    pub(crate) prediction: Option<(JobKey, u32)>,
    /// The instance that made it.
    pub(crate) by: Option<InstanceKey>,
    pub(crate) decoding: Decoding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoding {
    No,
    Asked,
    /// It failed or was not good enough. It is not tried again.
    Useless,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parity {
    /// Waits for its encoding or an instance, or runs.
    Coming,
    In(JobKey),
    Lost,
}

/// A query's place in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) group: GroupKey,
    pub(crate) slot: u8,
    pub(crate) row: u16,
}

impl Group {
    pub(crate) fn new(pool: PoolKey, payer: Payer, code: Code, opened: Time) -> Self {
        Self {
            pool,
            payer,
            code,
            stage: Stage::Open,
            watch: Watch::Off,
            encoded: false,
            slots: SmallVec::new(),
            size: 1,
            parities: SmallVec::from_elem(Parity::Coming, code.recovery.parities),
            pending: 0,
            outputs: SmallVec::new(),
            jobs: SmallVec::new(),
            places: SmallVec::new(),
            opened,
        }
    }

    pub(crate) fn full(&self) -> bool {
        self.slots.len() >= self.code.recovery.k
    }

    pub(crate) fn member(&mut self, place: Place) -> &mut Member {
        &mut self.slots[usize::from(place.slot)].members[usize::from(place.row)]
    }

    pub(crate) fn member_at(&self, place: Place) -> &Member {
        &self.slots[usize::from(place.slot)].members[usize::from(place.row)]
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.slots.iter().flat_map(|slot| &slot.members)
    }

    /// Whether a reconstruction could still help a member whose query is unanswered.
    pub(crate) fn needed(&self, alive: impl Fn(QueryKey) -> bool) -> bool {
        self.stage != Stage::Over
            && self.parities.iter().any(|parity| *parity != Parity::Lost)
            && self.members().any(|member| member.wants_help() && alive(member.query))
    }

    /// Whether arriving predictions are read, by a decoder or a comparison.
    pub(crate) fn reads_predictions(&self) -> bool {
        self.stage != Stage::Over && (self.code.recovery.reads_predictions() || self.code.detect)
    }

    /// Whether all outputs to compare have arrived; `None` if they never will.
    pub(crate) fn complete(&self) -> Option<bool> {
        let count = |of: fn(&Parity) -> bool| self.parities.iter().filter(|parity| of(parity)).count();
        let (here, coming) = (count(|p| matches!(p, Parity::In(_))), count(|p| *p == Parity::Coming));
        let possible = self.code.recovery.parities_to_compare().is_some_and(|enough| here + coming >= enough);
        possible.then(|| coming == 0 && self.members().all(|member| member.prediction.is_some()))
    }

    /// The outputs of a row that have arrived, for the code.
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

    /// Whether the prediction of a member can be recovered from the outputs that arrived.
    pub(crate) fn recoverable(&self, slot: u8, row: u16) -> bool {
        self.code.recovery.can_recover(self.arrived(row), Set::EMPTY.with(usize::from(slot)))
    }

    /// Whether the prediction of a member can be recovered once these parities and predictions have arrived as well.
    pub(crate) fn recoverable_with(
        &self,
        place: Place,
        parity: impl Fn(u8) -> bool,
        predicts: impl Fn(QueryKey) -> bool,
    ) -> bool {
        let mut arrived = self.arrived(place.row);
        for (slot, batch) in self.slots.iter().enumerate() {
            if batch.members.get(usize::from(place.row)).is_some_and(|member| predicts(member.query)) {
                arrived.predictions = arrived.predictions.with(slot);
            }
        }
        for index in (0..self.parities.len()).filter(|index| parity(*index as u8)) {
            arrived.parities = arrived.parities.with(index);
        }
        self.code.recovery.can_recover(arrived, Set::EMPTY.with(usize::from(place.slot)))
    }

    /// Whether the decoder would miss the predictions of these queries.
    pub(crate) fn misses(&self, rows: &[QueryKey]) -> bool {
        let of = |member: &Member| member.prediction.is_none() && rows.contains(&member.query);
        self.reads_predictions() && self.members().any(of)
    }

    /// The outputs of a row that the decoder reads, and the number of slots with such a row.
    pub(crate) fn parts(&self, row: u16) -> (Vec<Part>, u8) {
        let members = self.slots.iter().filter(|slot| slot.members.len() > usize::from(row)).count();
        let mut parts = self.all_parts(row);
        if !self.code.recovery.reads_predictions() {
            parts.retain(|part| matches!(part.source, Source::Parity(_)));
        }
        (parts, members as u8)
    }

    /// All outputs of a row that have arrived.
    pub(crate) fn all_parts(&self, row: u16) -> Vec<Part> {
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
    /// Whether it lacks a prediction, accepts a reconstruction, and none was tried before.
    pub(crate) fn wants_help(&self) -> bool {
        self.prediction.is_none() && self.accepts_approximate && self.decoding != Decoding::Useless
    }
}
