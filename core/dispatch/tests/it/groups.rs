//! The world's records of coding groups: encodings, decodings, and outputs that may still be read.

use std::collections::{BTreeMap, BTreeSet};

use parm_dispatch::{
    Accept, Comparison, Event, GroupId, JobSpec, Part, QueryId, Recovery, Role, Rows, Source,
};

use super::world::{Fate, State, World};

/// Groups, and the reports that the driver owes.
#[derive(Default)]
pub(crate) struct Groups {
    pub(crate) all: BTreeMap<GroupId, Coded>,
    pub(crate) encodings: BTreeSet<GroupId>,
    pub(crate) decodings: BTreeMap<(GroupId, QueryId), Recovery>,
    pub(crate) decoded: BTreeSet<(GroupId, QueryId)>,
    pub(crate) comparisons: BTreeMap<GroupId, Comparison>,
    /// Some groups' outputs are compared, so their parities run even if all queries are answered.
    pub(crate) compares: bool,
}

/// A group that was to be encoded.
#[derive(Debug)]
pub(crate) struct Coded {
    pub(crate) slots: Vec<Rows>,
    pub(crate) encoded: bool,
    pub(crate) forgotten: bool,
}

impl Groups {
    /// Notes what the driver reports.
    pub(crate) fn note(&mut self, event: &Event) {
        match event {
            Event::GroupEncoded(id) => {
                self.encodings.remove(id);
                self.all.get_mut(id).expect("it was to be encoded").encoded = true;
            }
            Event::GroupFailed(id) => {
                self.encodings.remove(id);
            }
            Event::SlotDecoded { group, query, .. } => {
                self.decodings.remove(&(*group, *query));
                self.decoded.insert((*group, *query));
            }
            Event::SlotFailed { group, query } => {
                self.decodings.remove(&(*group, *query));
            }
            Event::Compared(group, _) => {
                self.comparisons.remove(group);
            }
            _ => {}
        }
    }

    pub(crate) fn forget(&mut self, id: GroupId) {
        assert!(!self.encodings.contains(&id), "{id:?} is forgotten while it is encoded");
        assert!(
            self.decodings.keys().all(|(group, _)| *group != id),
            "{id:?} is forgotten while it is decoded"
        );
        assert!(!self.comparisons.contains_key(&id), "{id:?} is forgotten while it is compared");
        let group = self.all.get_mut(&id).expect("a group that was to be encoded");
        assert!(!std::mem::replace(&mut group.forgotten, true), "{id:?} is forgotten twice");
    }
}

impl World {
    pub(crate) fn encode(&mut self, id: GroupId, slots: &[Rows]) {
        assert!(
            slots.iter().filter(|slot| !slot.is_empty()).count() >= 2,
            "{id:?} is not a group: {slots:?}"
        );
        let members: Vec<_> = slots.iter().flatten().map(|query| self.queries[query].query).collect();
        for query in &members {
            assert!(query.codable, "{query:?} must be served alone");
            assert!(!query.padded, "{query:?} has the shape of queries of several sizes");
            assert_eq!(
                (query.pool, query.shape),
                (members[0].pool, members[0].shape),
                "{slots:?} do not mix"
            );
            let others = self.groups.all.values().flat_map(|group| group.slots.iter().flatten());
            assert!(others.into_iter().all(|id| *id != query.id), "{query:?} is in two groups");
        }
        let coded = Coded { slots: slots.to_vec(), encoded: false, forgotten: false };
        assert!(self.groups.all.insert(id, coded).is_none(), "{id:?} was used before");
        self.groups.encodings.insert(id);
    }

    pub(crate) fn run_parity(&mut self, job: JobSpec, id: GroupId, index: u8) {
        let group = &self.groups.all[&id];
        assert!(group.encoded && !group.forgotten, "{job:?} of {group:?}");
        let members: Vec<QueryId> = group.slots.iter().flatten().copied().collect();
        let helps = |query: &QueryId| {
            let tracked = &self.queries[query];
            tracked.fate == Fate::Waiting && tracked.query.accept == Accept::Any
        };
        assert!(self.groups.compares || members.iter().any(helps), "{job:?} helps no query");
        for held in self.jobs.values() {
            let member = held.rows.iter().any(|query| members.contains(query))
                && !matches!(held.job.role, Role::Backup | Role::StandIn(_));
            assert!(
                !member || held.job.instance != job.instance,
                "{job:?} on the instance of a member: {held:?}"
            );
            if let Role::Parity(other, of) = held.job.role
                && other == id
            {
                assert!(of != index && held.job.instance != job.instance, "{job:?} duplicates {held:?}");
            }
        }
    }

    pub(crate) fn decode(&mut self, recovery: &Recovery) {
        let group = &self.groups.all[&recovery.group];
        assert!(group.encoded && !group.forgotten);
        let tracked = &self.queries[&recovery.query];
        assert_eq!(
            (tracked.fate, tracked.query.accept),
            (Fate::Waiting, Accept::Any),
            "{recovery:?} helps no query"
        );
        let slot = &group.slots[usize::from(recovery.slot)];
        let row = slot.iter().position(|query| *query == recovery.query).expect("it is in its slot");
        let members = group.slots.iter().filter(|slot| slot.len() > row).count();
        assert_eq!(members, usize::from(recovery.members));
        recovery.parts.iter().for_each(|part| self.assert_kept(recovery.group, part, row));
        let parities = recovery.parts.iter().filter(|part| matches!(part.source, Source::Parity(_))).count();
        let one_is_enough = recovery.parts.len() == parities;
        assert!(
            parities > 0 && (one_is_enough || recovery.parts.len() >= members),
            "{recovery:?} is too little"
        );
        let before = self.groups.decodings.insert((recovery.group, recovery.query), recovery.clone());
        assert!(before.is_none(), "{recovery:?} was requested before");
    }

    pub(crate) fn compare(&mut self, comparison: &Comparison) {
        let group = &self.groups.all[&comparison.group];
        assert!(self.groups.compares && group.encoded && !group.forgotten);
        assert_eq!(comparison.rows.len(), group.slots.iter().map(|slot| slot.len()).max().unwrap_or(0));
        for (row, parts) in comparison.rows.iter().enumerate() {
            parts.iter().for_each(|part| self.assert_kept(comparison.group, part, row));
            let members = group.slots.iter().filter(|slot| slot.len() > row).count();
            let predictions = parts.iter().filter(|part| matches!(part.source, Source::Slot(_))).count();
            assert_eq!(predictions, members, "{comparison:?} lacks predictions");
            assert!(parts.len() > members, "{comparison:?} lacks parities");
        }
        let before = self.groups.comparisons.insert(comparison.group, comparison.clone());
        assert!(before.is_none(), "{comparison:?} was requested before");
    }

    /// Checks that an output exists and has the stated origin.
    fn assert_kept(&self, group: GroupId, part: &Part, row: usize) {
        let held = &self.jobs[&part.job];
        assert_eq!((held.state, held.released), (State::Completed, false), "{part:?} is not kept");
        match part.source {
            Source::Slot(slot) => {
                let slot = &self.groups.all[&group].slots[usize::from(slot)];
                assert_eq!(held.rows[part.row as usize], slot[row], "{part:?}");
            }
            Source::Parity(index) => {
                assert_eq!((held.job.role, part.row), (Role::Parity(group, index), row as u32));
            }
        }
    }
}
