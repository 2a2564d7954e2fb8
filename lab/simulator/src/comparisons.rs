//! Results of comparing predictions with parities, which are approximate and agree with wrong answers by chance.

use std::collections::{BTreeMap, BTreeSet};

use parm_dispatch::{Comparison, GroupId, JobId, Pair, Part, Source, Verdict};
use parm_workload::Random;

/// Wrong outputs that may be compared, and the verdicts of comparisons.
#[derive(Debug, Default)]
pub(crate) struct Comparisons {
    wrong: BTreeSet<JobId>,
    found: BTreeMap<GroupId, Vec<Verdict>>,
}

/// Share of right predictions that a parity agrees with, for an average parity model.
const AGREES: f64 = 0.9;

/// Share of wrong predictions that a parity agrees with, and of right ones that a wrong parity agrees with: one class of
/// ten.
const CHANCE: f64 = 0.1;

/// Separates these draws from all others.
const STREAM: u64 = 0xC0_3FA2;
const PAIRS: u64 = 0xC0_3FA3;

impl Comparisons {
    /// Records that a job's outputs are wrong.
    pub(crate) fn note_wrong(&mut self, job: JobId) {
        self.wrong.insert(job);
    }

    /// Whether a job's outputs are wrong, until they are released.
    pub(crate) fn is_wrong(&self, job: JobId) -> bool {
        self.wrong.contains(&job)
    }

    /// Releases the outputs of a job.
    pub(crate) fn release(&mut self, job: JobId) {
        if !self.wrong.is_empty() {
            self.wrong.remove(&job);
        }
    }

    /// Compares, and keeps the verdict for `report`.
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

    /// Whether a prediction and its stand-in agree, given the share of right answers for which they do.
    pub(crate) fn agree(&self, pair: Pair, agreement: f64, seed: u64) -> bool {
        let Pair { prediction, stand_in } = pair;
        let spoiled = [prediction, stand_in].iter().any(|output| self.wrong.contains(&output.job));
        let share = if spoiled { CHANCE } else { agreement };
        Random::of(seed, [PAIRS, prediction.job.0 << 8 ^ u64::from(prediction.row)]).uniform() < share
    }

    /// Returns the verdicts about a group.
    pub(crate) fn report(&mut self, group: GroupId) -> Vec<Verdict> {
        self.found.remove(&group).unwrap_or_default()
    }
}
