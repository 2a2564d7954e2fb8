//! How often a stand-in agrees with its model, and whether its answers may be given.
//!
//! **For clients of the dispatcher**, which see both answers: the frontend compares them, and configures the model without stand-in
//! while its answers are withheld. The dispatcher sees no bytes.
//!
//! The agreement is that of the last thousand comparisons, and known from a hundred on. Below the floor the answers are withheld, until
//! it is two points higher again: one disagreement must not withhold them at once. A stand-in that is mostly wrong is withheld
//! after twenty comparisons: chance explains one in ten thousand.
//!
//! A stand-in's answer ends the query's own run in most cases, so comparisons are rare where they matter most. A client
//! therefore runs the model once more, as background, for each answer while the agreement is unknown and for one in fifty afterwards
//! ([`Agreement::is_compared`]). While the answers are withheld it runs the stand-in for one in twenty queries
//! ([`Agreement::is_tried`]), because otherwise nobody learns that they agree again.

use std::collections::VecDeque;

/// The comparisons that count, those from which on the agreement is known, and those that show a stand-in that is mostly wrong.
const WINDOW: usize = 1000;
const KNOWN: usize = 100;
const FEW: usize = 20;

/// How much more than the floor must agree until the answers are given again.
const RECOVERY: f64 = 0.02;

/// Answers of which one is compared, and while they are withheld queries of which one is tried.
const ANSWERS: u32 = 50;
const QUERIES: u32 = 20;

/// The latest comparisons of a stand-in with its model.
#[derive(Clone, Debug)]
pub struct Agreement {
    floor: f64,
    latest: VecDeque<bool>,
    agreed: usize,
    is_withheld: bool,
    /// Answers, or queries while they are withheld, since the last one that was picked.
    passed: u32,
}

impl Agreement {
    /// None yet. Answers are withheld while a lower share than this agrees.
    pub fn new(floor: f64) -> Self {
        Self { floor, latest: VecDeque::new(), agreed: 0, is_withheld: false, passed: 0 }
    }

    /// Changes the floor.
    pub fn configure(&mut self, floor: f64) {
        self.floor = floor;
        self.judge();
    }

    /// A prediction and the stand-in's answer were compared.
    pub fn note(&mut self, agrees: bool) {
        if self.latest.len() == WINDOW {
            self.agreed -= usize::from(self.latest.pop_front() == Some(true));
        }
        self.latest.push_back(agrees);
        self.agreed += usize::from(agrees);
        self.judge();
    }

    /// The share of comparisons that agreed; `None` while it is unknown.
    pub fn share(&self) -> Option<f64> {
        (self.latest.len() >= KNOWN).then(|| self.agreed as f64 / self.latest.len() as f64)
    }

    /// Whether no client should get the stand-in's answer.
    pub fn is_withheld(&self) -> bool {
        self.is_withheld
    }

    /// A stand-in answered a query that no run of the model will answer. Says whether one should run, to be compared.
    pub fn is_compared(&mut self) -> bool {
        let every = if self.share().is_none() { 1 } else { ANSWERS };
        self.pick(every)
    }

    /// A query arrived while answers are withheld. Says whether the stand-in should run for it, to be compared.
    pub fn is_tried(&mut self) -> bool {
        self.pick(QUERIES)
    }

    fn pick(&mut self, every: u32) -> bool {
        self.passed += 1;
        let is_picked = self.passed >= every;
        self.passed = if is_picked { 0 } else { self.passed };
        is_picked
    }

    fn judge(&mut self) {
        let seen = self.latest.len();
        match self.share() {
            None => self.is_withheld |= seen >= FEW && (self.agreed as f64) < self.floor / 2.0 * seen as f64,
            Some(share) if self.is_withheld => self.is_withheld = share < (self.floor + RECOVERY).min(1.0),
            Some(share) => self.is_withheld = share < self.floor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share and whether answers are withheld, after so many comparisons each of which one in so many disagrees.
    fn after(comparisons: &[(usize, usize)]) -> (Option<f64>, bool) {
        let mut agreement = Agreement::new(0.8);
        for (count, wrong_every) in comparisons {
            (1..=*count).for_each(|n| agreement.note(n % wrong_every != 0));
        }
        (agreement.share(), agreement.is_withheld())
    }

    #[test]
    fn answers_are_withheld_below_the_floor_until_they_agree_well_again() {
        let never = usize::MAX;
        let rows: [(&[(usize, usize)], _); 10] = [
            (&[(19, 1)], (None, false)),
            (&[(20, 1)], (None, true)),
            (&[(20, 1), (79, never)], (None, true)),
            (&[(20, 1), (80, never)], (Some(0.8), true)),
            (&[(99, 2)], (None, false)),
            (&[(100, 2)], (Some(0.5), true)),
            (&[(100, 5)], (Some(0.8), false)),
            (&[(1000, 4)], (Some(0.75), true)),
            (&[(1000, 4), (1000, 5)], (Some(0.8), true)),
            (&[(1000, 4), (1000, 10)], (Some(0.9), false)),
        ];
        for (comparisons, expected) in rows {
            assert_eq!(after(comparisons), expected, "{comparisons:?}");
        }
    }

    #[test]
    fn new_floor_counts_at_once() {
        let mut agreement = Agreement::new(0.8);
        (0..1000).for_each(|n| agreement.note(n % 10 != 0));
        for (floor, is_withheld) in [(0.95, true), (0.89, true), (0.88, false)] {
            agreement.configure(floor);
            assert_eq!(agreement.is_withheld(), is_withheld, "{floor}");
        }
    }

    #[test]
    fn each_answer_is_compared_until_the_agreement_is_known_and_then_one_in_fifty() {
        let mut agreement = Agreement::new(0.8);
        let compared = |agreement: &mut Agreement| (0..200).filter(|_| agreement.is_compared()).count();
        assert_eq!(compared(&mut agreement), 200);
        (0..100).for_each(|_| agreement.note(true));
        assert_eq!(compared(&mut agreement), 4);
        assert_eq!((0..200).filter(|_| agreement.is_tried()).count(), 10);
    }
}
