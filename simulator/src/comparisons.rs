//! What comparing predictions with their parities comes to: parities are approximate, and wrong answers right by chance.

use std::collections::{BTreeMap, BTreeSet};

use parm_dispatch::{Comparison, GroupId, JobId, Part, Source, Verdict};
use parm_workload::Random;

/// Wrong outputs that may be compared, and what comparisons found.
#[derive(Debug, Default)]
pub(crate) struct Comparisons {
    wrong: BTreeSet<JobId>,
    found: BTreeMap<GroupId, Vec<Verdict>>,
}

/// Share of right predictions that a parity agrees with: that of a middling parity model.
const AGREES: f64 = 0.9;

/// Share of wrong predictions that it agrees with, and of right ones that a wrong parity does: one class of ten.
const CHANCE: f64 = 0.1;

/// Keeps these draws apart from all others.
const STREAM: u64 = 0xC0_3FA2;

impl Comparisons {
    /// A job made wrong outputs.
    pub(crate) fn note_wrong(&mut self, job: JobId) {
        self.wrong.insert(job);
    }

    /// The outputs of a job are forgotten.
    pub(crate) fn release(&mut self, job: JobId) {
        if !self.wrong.is_empty() {
            self.wrong.remove(&job);
        }
    }

    /// Compares; what is found is to be reported later.
    pub(crate) fn compare(&mut self, comparison: &Comparison, seed: u64) {
        let mut draw = Random::of(seed, [STREAM, comparison.group.0]);
        let mut verdicts = Vec::new();
        for (row, parts) in comparison.rows.iter().enumerate() {
            let wrong = |part: &Part| self.wrong.contains(&part.job);
            let spoiled = parts.iter().any(|part| matches!(part.source, Source::Parity(_)) && wrong(part));
            for part in parts {
                if let Source::Slot(slot) = part.source {
                    let share = if spoiled || wrong(part) { CHANCE } else { AGREES };
                    verdicts.push(Verdict { slot, row: row as u32, agrees: draw.uniform() < share });
                }
            }
        }
        self.found.insert(comparison.group, verdicts);
    }

    /// What was found of a group.
    pub(crate) fn report(&mut self, group: GroupId) -> Vec<Verdict> {
        self.found.remove(&group).unwrap_or_default()
    }
}
