//! The choices under each policy, in order, so that one step is a small change.

use std::num::NonZeroU16;

use parm_settings::{BatchSize, Factor, PolicyKind, Usual};

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

/// How long a reconstruction or a duplicate is delayed, as a multiple of the usual time.
const FACTORS: [Factor; 4] =
    [Factor::percent(110), Factor::percent(125), Factor::percent(150), Factor::percent(200)];
/// Duplicates, in percent of all jobs.
const BUDGETS: [u8; 4] = [2, 5, 10, 20];
/// Medians after which a query is late for its stand-in. Answers of stand-ins are held back as long.
const AFTER: [Factor; 4] =
    [Factor::percent(115), Factor::percent(125), Factor::percent(150), Factor::percent(200)];
/// Most answers of stand-ins, in percent of all.
const BOUNDS: [u8; 4] = [1, 2, 5, 10];
/// Rows of a batch.
const BATCHES: [u16; 4] = [1, 2, 4, 8];

impl Family {
    pub(super) fn size(&self) -> usize {
        self.dimensions.iter().map(|dimension| dimension.choices.len()).product()
    }

    pub(super) fn weight(&self) -> f64 {
        (self.size() as f64).sqrt()
    }
}

/// Returns the families of a problem, the one without redundancy first.
pub(super) fn all(problem: &Problem) -> Vec<Family> {
    let family = |name, policy, own: Vec<Dimension>| {
        let common = [ejection(), batches(problem)];
        Family { name, policy, dimensions: own.into_iter().chain(common).collect() }
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
        let plus = vec![usual(choices, last), graces(), of(), budgets(true)];
        families.push(family("parm+", PolicyKind::ParmPlus, plus));
    }
    if problem.quality.backup.is_some() && problem.instances > 1 {
        families.push(family("approximate-backup", PolicyKind::ApproximateBackup, vec![graces(), of()]));
    }
    if problem.quality.stand_in.is_some() && problem.instances > 1 {
        let own = vec![spare(), usual(AFTER.map(Knob::After).to_vec(), 0), bounds(), budgets(false)];
        families.push(family("stand-in", PolicyKind::StandIn, own));
    }
    families
}

fn spare() -> Dimension {
    usual(vec![Knob::Spare(false), Knob::Spare(true)], 1)
}

fn bounds() -> Dimension {
    usual(BOUNDS.map(Knob::Bound).to_vec(), 2)
}

fn usual(choices: Vec<Knob>, usual: usize) -> Dimension {
    Dimension { choices, usual }
}

fn ejection() -> Dimension {
    usual(vec![Knob::Ejection(false), Knob::Ejection(true)], 1)
}

/// Larger batches are offered only if a further row costs less than the first.
fn batches(problem: &Problem) -> Dimension {
    let gains = problem.service.gains();
    let most = if gains { problem.max_batch } else { 1 };
    let tenth_us = (problem.service.mean_seconds() * 1e5) as u64;
    let auto = (most > 1).then_some(Knob::Batch(BatchSize::Auto, 0));
    let sizes = BATCHES.into_iter().filter_map(NonZeroU16::new).filter(|rows| rows.get() <= most.max(1));
    let choices = sizes.flat_map(|rows| {
        let waits = if rows.get() == 1 { vec![0] } else { vec![0, tenth_us] };
        waits.into_iter().map(move |wait| Knob::Batch(rows.into(), wait))
    });
    usual(auto.into_iter().chain(choices).collect(), 0)
}

fn budgets(or_none: bool) -> Dimension {
    let none = or_none.then_some(None);
    let choices = none.into_iter().chain(BUDGETS.map(Some)).map(Knob::Hedge);
    usual(choices.collect(), 2 + usize::from(or_none))
}

fn graces() -> Dimension {
    usual(FACTORS.map(Knob::Grace).to_vec(), 1)
}

fn of() -> Dimension {
    usual([Usual::Median, Usual::Tail].map(Knob::Usual).to_vec(), 0)
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
