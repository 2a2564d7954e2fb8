//! Drops predictions by patterns of losses, and reconstructs them.

use parm_encoder::{Arrived, Code, Received, Recovery, Set, Workspace};

use crate::groups::{Groups, row_len};
use crate::{Array, Error};

/// Maximum patterns of one size. With more (four of 32 lost), evenly spaced ones are a sample.
const MOST: usize = 1000;

/// All patterns of `lost` losses, if the code can recover every one; otherwise none. Outputs are lost: predictions for a
/// systematic code, outputs of coded queries for another.
pub(crate) fn patterns(recovery: Recovery, lost: usize) -> Vec<Set> {
    let outputs = if recovery.is_systematic() { recovery.k } else { recovery.parities };
    let all = subsets(outputs, lost);
    let good = all.iter().all(|&lost| {
        let arrived = arrived(recovery, lost);
        recovery.can_recover(arrived, Set::first(recovery.k).without(arrived.predictions))
    });
    match good {
        true => {
            let step = all.len().div_ceil(MOST).max(1);
            all.into_iter().step_by(step).collect()
        }
        false => Vec::new(),
    }
}

/// The outputs that arrive when `lost` is lost.
fn arrived(recovery: Recovery, lost: Set) -> Arrived {
    let (members, parities) = (Set::first(recovery.k), Set::first(recovery.parities));
    match recovery.is_systematic() {
        true => Arrived { members, predictions: members.without(lost), parities },
        false => Arrived { members, predictions: Set::EMPTY, parities: parities.without(lost) },
    }
}

/// The subsets of `0..n` with `size` members, in lexical order.
fn subsets(n: usize, size: usize) -> Vec<Set> {
    fn grow(from: usize, n: usize, left: usize, chosen: Set, all: &mut Vec<Set>) {
        if left == 0 {
            return all.push(chosen);
        }
        for next in from..=n - left {
            grow(next + 1, n, left - 1, chosen.with(next), all);
        }
    }
    let mut all = Vec::new();
    if size <= n {
        grow(0, n, size, Set::EMPTY, &mut all);
    }
    all
}

/// A reconstruction of a lost prediction.
pub(crate) struct Reconstruction<'a> {
    /// The number of its group.
    pub(crate) group: usize,
    pub(crate) slot: usize,
    /// The row that it answers.
    pub(crate) row: usize,
    pub(crate) answer: &'a [f32],
}

/// Calls `see` with every reconstruction in every group, for each of these patterns of losses. `parities` are the
/// outputs for the coded queries, `[groups, ..]` each.
pub(crate) fn each(
    code: &dyn Code,
    groups: &Groups,
    (deployed, parities): (&Array<f32>, &[Array<f32>]),
    patterns: &[Set],
    mut see: impl FnMut(Reconstruction<'_>),
) -> Result<(), Error> {
    let width = row_len(deployed);
    let (mut workspace, mut answer) = (Workspace::default(), vec![0.0; width]);
    for &pattern in patterns {
        let arrived = arrived(code.recovery(), pattern);
        let lost = arrived.members.without(arrived.predictions);
        for (at, group) in groups.iter().enumerate() {
            let prediction = |(slot, &row): (usize, &usize)| {
                arrived.predictions.contains(slot).then(|| &deployed.data()[row * width..][..width])
            };
            let predictions: Vec<Option<&[f32]>> = group.iter().enumerate().map(prediction).collect();
            let outputs = parities.iter().enumerate().map(|(index, parity)| {
                let width = row_len(parity);
                arrived.parities.contains(index).then(|| &parity.data()[at * width..][..width])
            });
            let outputs: Vec<Option<&[f32]>> = outputs.collect();
            for slot in lost.iter() {
                let received =
                    Received { members: arrived.members, predictions: &predictions, parities: &outputs };
                code.decode(received, slot, &mut answer, &mut workspace)?;
                see(Reconstruction { group: at, slot, row: group[slot], answer: &answer });
            }
        }
    }
    Ok(())
}

/// The cost of losses in pairs: a prediction's score less the score of its reconstruction.
///
/// Both sides use the same rows, so rows that are hard for both do not add to the difference, and the interval is
/// narrower than that of two scores over different rows. Reconstructions of one group come from one parity and err
/// together, so a group counts as one observation.
pub(crate) struct Pairs {
    by_group: Vec<f64>,
    count: u64,
}

impl Pairs {
    pub(crate) fn new(groups: usize) -> Self {
        Self { by_group: vec![0.0; groups], count: 0 }
    }

    pub(crate) fn add(&mut self, group: usize, prediction: f64, reconstruction: f64) {
        self.by_group[group] += prediction - reconstruction;
        self.count += 1;
    }

    /// The standard error of the mean loss; `None` for a single group.
    pub(crate) fn error(&self) -> Option<f64> {
        let groups = self.by_group.len() as f64;
        if groups < 2.0 || self.count == 0 {
            return None;
        }
        let mean = self.by_group.iter().sum::<f64>() / groups;
        let square: f64 = self.by_group.iter().map(|loss| (loss - mean).powi(2)).sum();
        Some((square / (groups - 1.0) * groups).sqrt() / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use parm_encoder::{CodeSpec, Head, Kind};

    use super::*;

    #[test]
    fn subsets_lists_every_pattern_once() {
        let pairs: Vec<Vec<usize>> = subsets(4, 2).into_iter().map(|set| set.iter().collect()).collect();
        assert_eq!(pairs, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!(subsets(2, 3), []);
    }

    #[test]
    fn patterns_lists_only_recoverable_losses() {
        let count = |spec: CodeSpec, lost| patterns(spec.build().unwrap().recovery(), lost).len();
        assert_eq!(count(CodeSpec::new(Kind::Sum, 3, 1), 1), 3);
        assert_eq!(count(CodeSpec::new(Kind::Sum, 3, 1), 2), 0);
        assert_eq!(count(CodeSpec::new(Kind::Weighted, 4, 2), 2), 6);
        assert_eq!(count(CodeSpec { head: Some(Head::Slots), ..CodeSpec::new(Kind::Slots, 3, 1) }, 3), 1);
        assert_eq!(count(CodeSpec::new(Kind::Berrut, 3, 1), 1), 4);
        assert_eq!(count(CodeSpec::new(Kind::Berrut, 3, 1), 2), 0);
    }

    #[test]
    fn rows_that_both_get_wrong_do_not_widen_the_interval() {
        let mut pairs = Pairs::new(4);
        for group in 0..4 {
            pairs.add(group, f64::from(u8::from(group % 2 == 0)), f64::from(u8::from(group % 2 == 0)));
        }
        assert_eq!(pairs.error(), Some(0.0));
    }

    #[test]
    fn losses_of_one_group_count_once() {
        // A hundred losses of one in four: independent, and four to a group in every fourth group.
        let (mut apart, mut together) = (Pairs::new(400), Pairs::new(100));
        for at in 0..400 {
            apart.add(at, 1.0, f64::from(u8::from(at % 4 != 0)));
            together.add(at / 4, 1.0, f64::from(u8::from(at / 4 % 4 != 0)));
        }
        let (apart, together) = (apart.error().unwrap(), together.error().unwrap());
        assert!((apart - (0.25_f64 * 0.75 / 400.0).sqrt()).abs() < 1e-4, "{apart}");
        assert!((together / apart - 2.0).abs() < 0.01, "{together} and {apart}");
    }

    #[test]
    fn one_group_has_no_interval() {
        let mut pairs = Pairs::new(1);
        pairs.add(0, 1.0, 0.0);
        assert_eq!(pairs.error(), None);
    }
}
