//! Compares groups for the dispatcher to find wrong answers, and reports its suspicions.

use parm_dispatch::{Comparison, Event, GroupId, InstanceId, Part, PoolId, Source, Verdict};
use smallvec::SmallVec;

use super::coding::{Arrived, Check, Comparing, Decoding, Work};
use super::driver::Driver;
use super::effect::{Effect, Effects};
use super::state::State;
use crate::console::Kind;
use crate::error::Error;

impl State {
    /// Starts to compare a group, unless its data is gone.
    pub(super) fn compare(&mut self, comparison: &Comparison, effects: &mut Effects) {
        match self.comparing(comparison) {
            Some(comparing) => effects.push(Effect::Code(Box::new(Work::Compare(comparing)))),
            None => self.follow_up.push_back(Event::Compared(comparison.group, Vec::new())),
        }
    }

    fn comparing(&mut self, comparison: &Comparison) -> Option<Comparing> {
        let mut rows = Vec::with_capacity(comparison.rows.len());
        for (row, parts) in comparison.rows.iter().enumerate() {
            let mut checks = Vec::with_capacity(parts.len());
            for part in parts {
                if let Source::Slot(slot) = part.source {
                    checks.push(self.check(comparison.group, slot, row, part, parts)?);
                }
            }
            rows.push(checks);
        }
        Some(Comparing { group: comparison.group, rows })
    }

    fn check(&mut self, id: GroupId, slot: u8, row: usize, own: &Part, parts: &[Part]) -> Option<Check> {
        let query = *self.ledger.jobs.get(&own.job)?.rows.get(own.row as usize)?;
        let inputs = self.ledger.known(query)?.row.inputs.clone();
        let group = self.ledger.groups.get(&id)?;
        let arrived = |part: &Part| {
            let outputs = self.ledger.jobs.get(&part.job)?.outputs.clone()?;
            Some(Arrived { source: part.source, outputs, row: part.row as usize })
        };
        let reads_others = group.coder.code.recovery().reads_predictions();
        let mut views = SmallVec::new();
        for parity in parts.iter().filter(|part| matches!(part.source, Source::Parity(_))) {
            let others = |part: &&Part| matches!(part.source, Source::Slot(other) if other != slot);
            let read = parts.iter().filter(|part| reads_others && others(part)).chain([parity]);
            views.push(Decoding {
                group: id,
                query,
                pool: group.pool.clone(),
                coder: group.coder.clone(),
                slot: usize::from(slot),
                members: group.members(row),
                parts: read.map(arrived).collect::<Option<_>>()?,
                inputs: inputs.clone(),
            });
        }
        let leans = reads_others && views.len() > 1;
        Some(Check { slot, row: row as u32, prediction: arrived(own)?, views, leans })
    }

    /// Processes the comparison of a group.
    pub(super) fn compared(
        &mut self,
        driver: &Driver,
        id: GroupId,
        made: Result<Vec<Verdict>, Error>,
        effects: &mut Effects,
    ) {
        let verdicts = made.unwrap_or_else(|error| {
            tracing::debug!(%error, "comparison failed");
            Vec::new()
        });
        self.react(driver, Event::Compared(id, verdicts), effects);
    }

    /// Reports an instance suspected of wrong answers.
    pub(super) fn suspect(&self, driver: &Driver, instance: InstanceId, pool: PoolId) {
        let text =
            "its answers disagree with parities or stand-ins far more often than those of other instances";
        self.tell(driver, Kind::Suspect, instance, Some(pool), text.to_owned());
        let instance = self.ledger.instances.get(&instance).map_or("", |instance| instance.name.as_str());
        let model = self.ledger.pools.get(&pool).map_or("", |pool| pool.model.name.as_str());
        tracing::warn!(
            code = %parm_protocol::StableCode::InstanceSuspected,
            instance,
            model,
            "instance is suspected of wrong answers: they disagree with parities or stand-ins far more often than those of others: check its model"
        );
    }
}
