//! All settings that can be chosen: every policy with each combination of its choices.
//!
//! The space contains only effective choices: batches if rows share their cost, codes that were measured, redundancy
//! within the limits.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};

use parm_settings::{BatchSize, Factor, Fraction, PolicyKind, PoolSettings};

use crate::tuner::{Coded, Problem};

/// One combination.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The policy's name.
    pub policy: &'static str,
    /// The choices in words; empty if there are none.
    pub label: String,
    /// The dispatch settings.
    pub settings: PoolSettings,
}

/// The choices of one kind, in order, so that one step is a small change. Each has its words, and changes settings.
type Choices = Vec<(String, Change)>;
type Change = Box<dyn Fn(&mut PoolSettings)>;

/// After how many times the usual time a query is late, and takes an approximate answer.
const LATE: [Factor; 4] =
    [Factor::percent(115), Factor::percent(125), Factor::percent(150), Factor::percent(200)];
/// Duplicates, in percent of all jobs.
const BUDGETS: [u8; 4] = [2, 5, 10, 20];
/// Most answers of stand-ins, in percent of all.
const BOUNDS: [u8; 4] = [1, 2, 5, 10];
/// Rows of a batch.
const BATCHES: [u16; 4] = [1, 2, 4, 8];

/// Returns all combinations for a problem, first the baseline: no redundancy and no other change.
pub(crate) fn candidates(problem: &Problem) -> Vec<Candidate> {
    let mut all = Vec::new();
    let mut add = |name, policy, own: Vec<Choices>| {
        all.extend(combined(name, policy, own.into_iter().chain([batches(problem)]).collect()));
    };
    add("equal", PolicyKind::Equal, vec![]);
    add("hedge", PolicyKind::Hedge, vec![budgets()]);
    // A copy of every batch doubles the executions.
    if problem.limits.extra.is_none_or(|most| most >= 0.5) && problem.instances > 1 {
        add("replicate", PolicyKind::Replicate, vec![]);
    }
    let codes = &problem.quality.codes;
    if !codes.is_empty() && problem.instances > 1 {
        add("parm", PolicyKind::Parm, vec![fixed(codes), splits(problem.instances)]);
        let groups = fixed(codes).into_iter().chain(following(codes)).collect();
        let no_hedge: Change = Box::new(|settings| settings.coding.parm_plus.hedge = false);
        let hedges = std::iter::once(("no hedge".to_owned(), no_hedge)).chain(budgets()).collect();
        add("parm+", PolicyKind::ParmPlus, vec![groups, late(), hedges]);
    }
    if problem.quality.backup.is_some() && problem.instances > 1 {
        add("approximate-backup", PolicyKind::ApproximateBackup, vec![late()]);
    }
    if problem.quality.stand_in.is_some() && problem.instances > 1 {
        add("stand-in", PolicyKind::StandIn, vec![late(), bounds(), budgets()]);
    }
    all
}

/// Combines each choice with each of the others; the first kind changes fastest.
fn combined(policy: &'static str, kind: PolicyKind, choices: Vec<Choices>) -> Vec<Candidate> {
    let settings = PoolSettings { policy: kind, ..PoolSettings::default() };
    let mut all = vec![Candidate { policy, label: String::new(), settings }];
    for choices in choices {
        let shown = choices.len() > 1;
        let with = |(words, change): &(String, Change), before: &Candidate| {
            let Candidate { mut label, mut settings, .. } = before.clone();
            change(&mut settings);
            if shown {
                label = if label.is_empty() { words.clone() } else { format!("{label}, {words}") };
            }
            Candidate { policy, label, settings }
        };
        all = choices
            .iter()
            .flat_map(|choice| all.iter().map(|before| with(choice, before)).collect::<Vec<_>>())
            .collect();
    }
    all
}

/// Groups of one size.
fn fixed(codes: &[Coded]) -> Choices {
    let of = |code: Coded| -> (String, Change) {
        let change = move |settings: &mut PoolSettings| {
            set_code(&code, settings);
            settings.coding.parm_plus.k_follows_load = false;
        };
        (format!("k={} r={}", code.k, code.r), Box::new(change))
    };
    codes.iter().copied().map(of).collect()
}

/// Groups whose size follows the load: one choice for each number of parities.
fn following(codes: &[Coded]) -> Choices {
    let mut parities: Vec<u8> = codes.iter().map(|code| code.r).collect();
    parities.sort_unstable();
    parities.dedup();
    let of = |r: u8| -> (String, Change) {
        let codes: Vec<Coded> = codes.iter().copied().filter(|code| code.r == r).collect();
        let ks = || codes.iter().map(|code| code.k);
        let (least, most) = (ks().min().unwrap_or(1), ks().max().unwrap_or(1));
        let change = move |settings: &mut PoolSettings| {
            codes.iter().for_each(|code| set_code(code, settings));
            let coding = &mut settings.coding;
            // A single code is set for groups of all sizes; if the codes differ, it is left unset.
            let alike = codes.windows(2).all(|two| two[0].code == two[1].code);
            coding.code = coding.code.filter(|_| alike);
            coding.k = NonZeroU8::new(least).unwrap_or(coding.k);
            let sizes = codes.iter().filter_map(|code| NonZeroU8::new(code.k));
            coding.k_choices = sizes.filter(|k| *k != coding.k).collect();
            coding.parm_plus.k_follows_load = true;
        };
        (format!("k={least}..{most} by load r={r}"), Box::new(change))
    };
    parities.into_iter().map(of).collect()
}

fn set_code(code: &Coded, settings: &mut PoolSettings) {
    let coding = &mut settings.coding;
    coding.k = NonZeroU8::new(code.k).unwrap_or(coding.k);
    coding.r = NonZeroU8::new(code.r).unwrap_or(coding.r);
    coding.code = code.code;
}

/// Instances for parities: the paper's share of each k, and from one to half of them.
fn splits(instances: u32) -> Choices {
    let most = (instances / 2).max(1);
    let steps = most.min(6);
    let mut counts: Vec<u32> = (1..=steps).map(|step| (most * step).div_ceil(steps)).collect();
    counts.dedup();
    let of = |kept: Option<u32>| -> (String, Change) {
        let words = kept.map_or("paper's split".to_owned(), |kept| format!("{kept} for parities"));
        (words, Box::new(move |settings| settings.coding.parity_instances = kept.and_then(NonZeroU32::new)))
    };
    std::iter::once(None).chain(counts.into_iter().map(Some)).map(of).collect()
}

fn late() -> Choices {
    let of = |factor: Factor| -> (String, Change) {
        let change = move |settings: &mut PoolSettings| {
            settings.coding.grace.factor = factor;
            settings.stand_in.late_factor = factor;
        };
        (format!("late after {}x", factor.get()), Box::new(change))
    };
    LATE.into_iter().map(of).collect()
}

fn budgets() -> Choices {
    let of = |percent: u8| -> (String, Change) {
        let ratio = Fraction::percent(percent);
        (format!("hedge {percent} %"), Box::new(move |settings| settings.hedge.budget.ratio = ratio))
    };
    BUDGETS.into_iter().map(of).collect()
}

fn bounds() -> Choices {
    let of = |percent: u8| -> (String, Change) {
        let bound = Fraction::percent(percent);
        (format!("at most {percent} %"), Box::new(move |settings| settings.stand_in.bound = bound))
    };
    BOUNDS.into_iter().map(of).collect()
}

/// Larger batches are offered only if a further row costs less than the first.
fn batches(problem: &Problem) -> Choices {
    let most = if problem.service.gains() { problem.max_batch.max(1) } else { 1 };
    let auto = (most > 1).then_some(BatchSize::Auto);
    let sizes = BATCHES.into_iter().filter_map(NonZeroU16::new).filter(|rows| rows.get() <= most);
    let of = |rows: BatchSize| -> (String, Change) {
        (format!("batch {rows}"), Box::new(move |settings| settings.batch.max_size = rows))
    };
    auto.into_iter().chain(sizes.map(Into::into)).map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tuner::problem::tests::paper;

    #[test]
    fn combinations_differ_and_the_first_has_no_redundancy() {
        let all = candidates(&paper());
        let labels: BTreeSet<_> = all.iter().map(|one| (one.policy, &one.label)).collect();
        assert_eq!(labels.len(), all.len(), "two combinations have the same label");
        assert_eq!(all[0].settings.policy, PolicyKind::Equal);
    }
}
