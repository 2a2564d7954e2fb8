//! The loss patterns that an evaluation tries.

use parm_encoder::{Arrived, Recovery, Set};

/// Maximum patterns of one size. With more (four of 32 lost), evenly spaced ones are a sample.
const MOST: usize = 1000;

/// The lost outputs of a group: predictions for a systematic code, outputs of coded queries for another.
pub(crate) type Lost = Set;

/// All patterns of `lost` losses, if the code can recover every one; otherwise none.
pub(super) fn patterns(recovery: Recovery, lost: usize) -> Vec<Lost> {
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

/// The patterns with one loss.
pub(crate) fn single_losses(recovery: Recovery) -> Vec<Lost> {
    patterns(recovery, 1)
}

/// The outputs that arrive when `lost` is lost.
pub(super) fn arrived(recovery: Recovery, lost: Lost) -> Arrived {
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
}
