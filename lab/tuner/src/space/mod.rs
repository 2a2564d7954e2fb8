//! Everything that could be set, as lists of choices: a family for each policy, a dimension for each thing to choose.
//!
//! Only what makes a difference is in it: batches where rows share their cost, codes that were measured, redundancy that
//! the limits allow. The grid of all combinations is far too large to try; it is there to be searched, and to be tried
//! whole by whoever wants to know what the search missed.

mod family;
mod knob;

use family::Family;
use knob::Knob;
use parm_dispatch::PoolSettings;
use parm_workload::Random;

use crate::Problem;

/// Everything that could be set for a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    families: Vec<Family>,
}

/// One combination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    family: usize,
    /// For every dimension of the family, which choice.
    choices: Vec<usize>,
}

impl Space {
    /// What could be set for a problem.
    pub fn of(problem: &Problem) -> Self {
        Self { families: family::all(problem) }
    }

    /// How many combinations there are.
    pub fn size(&self) -> usize {
        self.families.iter().map(Family::size).sum()
    }

    /// All combinations.
    pub fn grid(&self) -> Vec<Candidate> {
        let of =
            |family: usize| (0..self.families[family].size()).map(move |number| self.nth(family, number));
        (0..self.families.len()).flat_map(of).collect()
    }

    /// Every policy as it comes, first of all the one that the others are compared with.
    pub fn usual(&self) -> Vec<Candidate> {
        let choices = |family: &Family| family.dimensions.iter().map(|dimension| dimension.usual).collect();
        self.families
            .iter()
            .enumerate()
            .map(|(family, of)| Candidate { family, choices: choices(of) })
            .collect()
    }

    /// No redundancy, nothing else changed: what the others are compared with.
    pub fn baseline(&self) -> Candidate {
        self.usual().swap_remove(0)
    }

    /// So many combinations, the usual ones and others at random: as many of each policy as the square root of what
    /// there is of it, so that small families are not lost and large ones are looked into.
    pub fn sample(&self, count: usize, seed: u64) -> Vec<Candidate> {
        let mut drawn = self.usual();
        let weight: f64 = self.families.iter().map(Family::weight).sum();
        for (family, of) in self.families.iter().enumerate() {
            let share = (count as f64 * of.weight() / weight).round() as usize;
            let mut draw = Random::of(seed, [SAMPLE, family as u64]);
            // A family that is nearly used up gives the same ones again: try a few times more, then let be.
            for _ in 0..4 * share {
                let known = drawn.iter().filter(|candidate| candidate.family == family).count();
                if known >= share.min(of.size()) {
                    break;
                }
                let candidate = self.nth(family, draw.below(of.size()));
                if !drawn.contains(&candidate) {
                    drawn.push(candidate);
                }
            }
        }
        drawn
    }

    /// The combinations that differ in one dimension by one step.
    pub fn neighbours(&self, of: &Candidate) -> Vec<Candidate> {
        let dimensions = &self.families[of.family].dimensions;
        let mut near = Vec::new();
        for (dimension, at) in of.choices.iter().enumerate() {
            let last = dimensions[dimension].choices.len() - 1;
            for to in [at.checked_sub(1), Some(at + 1).filter(|to| *to <= last)].into_iter().flatten() {
                let mut next = of.clone();
                next.choices[dimension] = to;
                near.push(next);
            }
        }
        near
    }

    /// What the dispatcher is told.
    pub fn settings(&self, of: &Candidate) -> PoolSettings {
        let family = &self.families[of.family];
        let mut settings = PoolSettings { policy: family.policy, ..PoolSettings::default() };
        self.knobs(of).for_each(|knob| knob.turn(&mut settings));
        settings
    }

    /// The policy's name.
    pub fn policy(&self, of: &Candidate) -> &'static str {
        self.families[of.family].name
    }

    /// What was chosen, in words; nothing for what cannot be chosen.
    pub fn label(&self, of: &Candidate) -> String {
        let dimensions = &self.families[of.family].dimensions;
        let chosen = self.knobs(of).zip(dimensions).filter(|(_, dimension)| dimension.choices.len() > 1);
        let words: Vec<String> =
            chosen.map(|(knob, _)| knob.to_string()).filter(|word| !word.is_empty()).collect();
        words.join(", ")
    }

    fn knobs(&self, of: &Candidate) -> impl Iterator<Item = &Knob> {
        let dimensions = &self.families[of.family].dimensions;
        dimensions.iter().zip(&of.choices).map(|(dimension, choice)| &dimension.choices[*choice])
    }

    /// The combination of this number, as digits of as many values as each dimension has.
    fn nth(&self, family: usize, mut number: usize) -> Candidate {
        let digit = |dimension: &family::Dimension| {
            let size = dimension.choices.len();
            let digit = number % size;
            number /= size;
            digit
        };
        Candidate { family, choices: self.families[family].dimensions.iter().map(digit).collect() }
    }
}

const SAMPLE: u64 = 0x70E5;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parm_dispatch::PolicyKind;

    use super::*;
    use crate::problem::tests::paper;

    #[test]
    fn the_grid_holds_every_combination_once() {
        let space = Space::of(&paper());
        let grid = space.grid();
        assert_eq!(grid.len(), space.size());
        assert_eq!(grid.iter().collect::<BTreeSet<_>>().len(), grid.len());
        let labels: BTreeSet<_> = grid.iter().map(|c| (space.policy(c), space.label(c))).collect();
        assert_eq!(labels.len(), grid.len(), "no two are described alike");
    }

    #[test]
    fn the_baseline_is_no_redundancy_and_the_sample_has_every_policy_as_it_comes() {
        let space = Space::of(&paper());
        assert_eq!(space.settings(&space.baseline()).policy, PolicyKind::Equal);
        let sample = space.sample(60, 1);
        assert!(space.usual().iter().all(|usual| sample.contains(usual)));
        assert_eq!(sample.iter().collect::<BTreeSet<_>>().len(), sample.len());
        assert!((40..=80).contains(&sample.len()), "{}", sample.len());
        assert_eq!(sample, space.sample(60, 1));
    }

    #[test]
    fn neighbours_are_one_step_away() {
        let space = Space::of(&paper());
        for usual in space.usual() {
            for near in space.neighbours(&usual) {
                let steps =
                    near.choices.iter().zip(&usual.choices).map(|(a, b)| a.abs_diff(*b)).sum::<usize>();
                assert_eq!((near.family, steps), (usual.family, 1));
            }
        }
    }
}
