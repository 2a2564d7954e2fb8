//! The choices under each policy, in order, so that one step is a small change.

use std::num::NonZeroU16;

use parm_settings::{BatchSize, Factor, PolicyKind};

use super::Knob;
use crate::{Coded, Problem};

/// A policy and its choices.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) policy: PolicyKind,
    pub(super) dimensions: Vec<Dimension>,
}

/// One dimension of choices.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dimension {
    pub(super) choices: Vec<Knob>,
    /// The default choice, or the nearest one.
    pub(super) usual: usize,
}

/// After how many times the usual time a query is late, and takes an approximate answer.
const LATE: [Factor; 4] =
    [Factor::percent(115), Factor::percent(125), Factor::percent(150), Factor::percent(200)];
/// Duplicates, in percent of all jobs.
const BUDGETS: [u8; 4] = [2, 5, 10, 20];
/// Most answers of stand-ins, in percent of all.
const BOUNDS: [u8; 4] = [1, 2, 5, 10];
/// Rows of a batch.
const BATCHES: [u16; 4] = [1, 2, 4, 8];

impl Family {
    pub(super) fn size(&self) -> usize {
        self.dimensions.iter().map(|dimension| dimension.choices.len()).product()
    }
}

/// Returns the families of a problem, the one without redundancy first.
pub(super) fn all(problem: &Problem) -> Vec<Family> {
    let family = |name, policy, own: Vec<Dimension>| {
        let dimensions = own.into_iter().chain([batches(problem)]).collect();
        Family { name, policy, dimensions }
    };
    let mut families = vec![
        family("equal", PolicyKind::Equal, vec![]),
        family("hedge", PolicyKind::Hedge, vec![budgets(false)]),
    ];
    // A copy of every batch doubles the executions.
    if problem.limits.extra.is_none_or(|most| most >= 0.5) && problem.instances > 1 {
        families.push(family("replicate", PolicyKind::Replicate, vec![]));
    }
    let codes = &problem.quality.codes;
    if !codes.is_empty() && problem.instances > 1 {
        let fixed: Vec<Knob> = codes.iter().copied().map(Knob::Code).collect();
        let split = splits(problem.instances);
        families.push(family("parm", PolicyKind::Parm, vec![usual(fixed.clone(), 0), split]));
        let following = following(codes);
        let choices: Vec<Knob> = fixed.into_iter().chain(following).collect();
        let last = choices.len() - 1;
        let plus = vec![usual(choices, last), late(1), budgets(true)];
        families.push(family("parm+", PolicyKind::ParmPlus, plus));
    }
    if problem.quality.backup.is_some() && problem.instances > 1 {
        families.push(family("approximate-backup", PolicyKind::ApproximateBackup, vec![late(1)]));
    }
    if problem.quality.stand_in.is_some() && problem.instances > 1 {
        let own = vec![late(0), bounds(), budgets(false)];
        families.push(family("stand-in", PolicyKind::StandIn, own));
    }
    families
}

fn bounds() -> Dimension {
    usual(BOUNDS.map(Knob::Bound).to_vec(), 2)
}

fn usual(choices: Vec<Knob>, usual: usize) -> Dimension {
    Dimension { choices, usual }
}

/// Larger batches are offered only if a further row costs less than the first.
fn batches(problem: &Problem) -> Dimension {
    let gains = problem.service.gains();
    let most = if gains { problem.max_batch } else { 1 };
    let auto = (most > 1).then_some(BatchSize::Auto);
    let sizes = BATCHES.into_iter().filter_map(NonZeroU16::new).filter(|rows| rows.get() <= most.max(1));
    usual(auto.into_iter().chain(sizes.map(Into::into)).map(Knob::Batch).collect(), 0)
}

fn budgets(or_none: bool) -> Dimension {
    let none = or_none.then_some(None);
    let choices = none.into_iter().chain(BUDGETS.map(Some)).map(Knob::Hedge);
    usual(choices.collect(), 2 + usize::from(or_none))
}

fn late(default: usize) -> Dimension {
    usual(LATE.map(Knob::Late).to_vec(), default)
}

/// From one instance for parities to half of them, and the paper's share of each k.
fn splits(instances: u32) -> Dimension {
    let most = (instances / 2).max(1);
    let steps = most.min(6);
    let mut counts: Vec<u32> = (1..=steps).map(|step| (most * step).div_ceil(steps)).collect();
    counts.dedup();
    usual(std::iter::once(None).chain(counts.into_iter().map(Some)).map(Knob::Split).collect(), 0)
}

/// Codes of several k: one choice for each number of parities.
fn following(codes: &[Coded]) -> Vec<Knob> {
    let mut parities: Vec<u8> = codes.iter().map(|code| code.r).collect();
    parities.sort_unstable();
    parities.dedup();
    let of = |r| codes.iter().copied().filter(move |code: &Coded| code.r == r).collect::<Vec<_>>();
    parities.into_iter().map(of).filter(|codes| !codes.is_empty()).map(Knob::Following).collect()
}
