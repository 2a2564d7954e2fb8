//! Coding groups in the ledger: starts encodings and decodings, and processes their results.

use std::sync::Arc;

use parm_dispatch::{Event, GroupId, QueryId, Recovery, Rows, Source, Time};
use smallvec::SmallVec;

use super::coding::{Arrived, Decoded, Decoding, Encoding, Group, ParityQuery, Work};
use super::driver::Driver;
use super::effect::{Effect, Effects};
use super::inputs::JobRows;
use super::job::Task;
use super::pool::Pool;
use super::state::State;
use crate::console::Step;
use crate::error::Error;

impl State {
    /// Starts to encode a group; it has no parities if its queries or its code are gone.
    pub(super) fn encode(&mut self, id: GroupId, slots: &[Rows], effects: &mut Effects) {
        match self.encoding(id, slots) {
            Some(encoding) => effects.push(Effect::Code(Box::new(Work::Encode(encoding)))),
            None => self.follow_up.push_back(Event::GroupFailed(id)),
        }
    }

    fn encoding(&mut self, id: GroupId, slots: &[Rows]) -> Option<Encoding> {
        let first = *slots.iter().flatten().next()?;
        let pool = self.ledger.known(first)?.pool;
        let pool = self.ledger.pools.get(&pool)?.clone();
        let codes = pool.codes();
        let coder = codes.coder(slots.len())?.clone();
        let mut deadline = Time::ZERO;
        let mut members: SmallVec<[JobRows; 4]> = SmallVec::new();
        for slot in slots {
            let mut rows = JobRows::new();
            for query in slot {
                let query = self.ledger.known(*query)?;
                // The query is older than these codes, and their guards did not check it: it could spoil the whole group.
                if query.row.inputs.guarded_by != codes.turn {
                    return None;
                }
                deadline = deadline.max(query.deadline);
                rows.push(query.row.clone());
            }
            members.push(rows);
        }
        let group = Group {
            pool: pool.clone(),
            coder: coder.clone(),
            ids: slots.iter().flatten().copied().collect(),
            slots: slots.iter().map(|slot| slot.len() as u16).collect(),
            deadline,
            queries: Vec::new(),
            decoded: SmallVec::new(),
        };
        self.ledger.groups.insert(id, group);
        Some(Encoding { group: id, pool, coder, slots: members })
    }

    /// Processes the result of an encoding.
    pub(super) fn encoded(
        &mut self,
        driver: &Driver,
        id: GroupId,
        made: Result<Vec<ParityQuery>, Error>,
        effects: &mut Effects,
    ) {
        let Some(group) = self.ledger.groups.get_mut(&id) else { return };
        let event = match made {
            Ok(queries) => {
                group.queries = queries;
                Event::GroupEncoded(id)
            }
            Err(error) => {
                group.pool.metrics.coding.encode_failures.inc();
                tracing::debug!(model = %group.pool.model.name, %error, "encoding failed");
                Event::GroupFailed(id)
            }
        };
        self.react(driver, event, effects);
    }

    /// The pool, task and deadline of a parity job.
    pub(super) fn parity(&self, id: GroupId, index: u8) -> Option<(Arc<Pool>, Task, Time)> {
        let group = self.ledger.groups.get(&id)?;
        let query = group.queries.get(usize::from(index))?.clone();
        let model = group.coder.models.get(usize::from(index)).cloned();
        Some((group.pool.clone(), Task::Parity(model, query), group.deadline))
    }

    /// Starts to decode a prediction from the outputs that have arrived.
    pub(super) fn decode(&mut self, recovery: &Recovery, effects: &mut Effects) {
        match self.decoding(recovery) {
            Some(decoding) => effects.push(Effect::Code(Box::new(Work::Decode(decoding)))),
            None => {
                let (group, query) = (recovery.group, recovery.query);
                self.follow_up.push_back(Event::SlotFailed { group, query });
            }
        }
    }

    fn decoding(&mut self, recovery: &Recovery) -> Option<Decoding> {
        let inputs = self.ledger.known(recovery.query)?.row.inputs.clone();
        let group = self.ledger.groups.get(&recovery.group)?;
        let mut row = None;
        let mut parts = Vec::with_capacity(recovery.parts.len());
        for part in &recovery.parts {
            if let Source::Parity(_) = part.source {
                row = Some(part.row as usize);
            }
            let outputs = self.ledger.jobs.get(&part.job)?.outputs.clone()?;
            parts.push(Arrived { source: part.source, outputs, row: part.row as usize });
        }
        Some(Decoding {
            group: recovery.group,
            query: recovery.query,
            pool: group.pool.clone(),
            coder: group.coder.clone(),
            slot: usize::from(recovery.slot),
            members: group.members(row?),
            parts,
            inputs,
        })
    }

    /// Processes the result of a decoding.
    pub(super) fn decoded(
        &mut self,
        driver: &Driver,
        id: GroupId,
        query: QueryId,
        made: Result<Decoded, Error>,
        effects: &mut Effects,
    ) {
        if let Ok((_, confidence)) = &made {
            self.step(driver.clock.now(), query, Step::Decoded(id.0, *confidence));
        }
        let Some(group) = self.ledger.groups.get_mut(&id) else { return };
        let metrics = &group.pool.metrics.coding;
        let event = match made {
            Ok((outputs, confidence)) => {
                if let Some(confidence) = confidence {
                    metrics.confidence.observe(f64::from(confidence));
                }
                group.decoded.push((query, Arc::new(outputs)));
                Event::SlotDecoded { group: id, query, confidence }
            }
            Err(error) => {
                metrics.decode_failures.inc();
                tracing::debug!(model = %group.pool.model.name, %error, "decoding failed");
                Event::SlotFailed { group: id, query }
            }
        };
        self.react(driver, event, effects);
    }
}
