//! All settings that can be chosen: a family for each policy, a dimension for each choice.
//!
//! The space contains only effective choices: batches if rows share their cost, codes that were measured, redundancy
//! within the limits.

mod family;
mod knob;

use family::Family;
use knob::Knob;
use parm_settings::PoolSettings;

use crate::Problem;

/// The settings that can be chosen for a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    families: Vec<Family>,
}

/// One combination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    family: usize,
    /// The choice in each dimension of the family.
    choices: Vec<usize>,
}

impl Space {
    /// Creates the space of a problem.
    pub fn of(problem: &Problem) -> Self {
        Self { families: family::all(problem) }
    }

    /// Returns the number of combinations.
    pub fn size(&self) -> usize {
        self.families.iter().map(Family::size).sum()
    }

    /// Returns all combinations.
    pub fn grid(&self) -> Vec<Candidate> {
        let of =
            |family: usize| (0..self.families[family].size()).map(move |number| self.nth(family, number));
        (0..self.families.len()).flat_map(of).collect()
    }

    /// Returns every policy with its default choices, the baseline first.
    pub fn usual(&self) -> Vec<Candidate> {
        let choices = |family: &Family| family.dimensions.iter().map(|dimension| dimension.usual).collect();
        self.families
            .iter()
            .enumerate()
            .map(|(family, of)| Candidate { family, choices: choices(of) })
            .collect()
    }

    /// Returns the baseline: no redundancy and no other change.
    pub fn baseline(&self) -> Candidate {
        self.usual().swap_remove(0)
    }

    /// Returns the dispatch settings of a candidate.
    pub fn settings(&self, of: &Candidate) -> PoolSettings {
        let family = &self.families[of.family];
        let mut settings = PoolSettings { policy: family.policy, ..PoolSettings::default() };
        self.knobs(of).for_each(|knob| knob.turn(&mut settings));
        settings
    }

    /// Returns the policy's name.
    pub fn policy(&self, of: &Candidate) -> &'static str {
        self.families[of.family].name
    }

    /// Returns the choices in words; empty if there are none.
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

    /// Returns the combination of this number, as digits with the size of each dimension as base.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parm_settings::PolicyKind;

    use super::*;
    use crate::problem::tests::paper;

    #[test]
    fn grid_has_every_combination_once() {
        let space = Space::of(&paper());
        let grid = space.grid();
        assert_eq!(grid.len(), space.size());
        assert_eq!(grid.iter().collect::<BTreeSet<_>>().len(), grid.len());
        let labels: BTreeSet<_> = grid.iter().map(|c| (space.policy(c), space.label(c))).collect();
        assert_eq!(labels.len(), grid.len(), "two combinations have the same label");
    }

    #[test]
    fn baseline_has_no_redundancy_and_each_policy_its_default() {
        let space = Space::of(&paper());
        assert_eq!(space.settings(&space.baseline()).policy, PolicyKind::Equal);
        let grid = space.grid();
        assert!(space.usual().iter().all(|usual| grid.contains(usual)));
    }
}
