//! Instances that answer wrongly more often than others.
//!
//! **For clients of the dispatcher**, which compare predictions with answers of stand-ins. [`Doubts`] says who is suspect, and
//! [`Dispatcher::distrust`](crate::Dispatcher::distrust) takes that instance out of service.
//!
//! Problem: a stand-in is an approximation, so it disagrees with correct answers too, for example one in ten. The rate depends on
//! the models and on current queries. One disagreement proves nothing, and either instance may be the wrong one.
//!
//! Choice: the base rate is that of the other instances, which compute the same function. A sequential probability ratio test
//! compares it with the rate that an instance would have if half of its answers were wrong. The test restarts whenever it is sure
//! that all is well (Page's CUSUM), because an instance may go wrong at any time. There is at most one false alarm in a hundred million
//! comparisons, and an instance that is always wrong is found after about fifteen.
//!
//! Each comparison is evidence about both instances, so each instance is observed twice as often. A disagreement counts against the
//! instance that is doubted more, and against both if neither is. So an instance that is always wrong gathers evidence with every
//! answer, and its changing partners do not. One row of each job is evidence: the test assumes independent answers, but the rows of a job
//! often come from one client.
//!
//! Rejected: a fixed window and a test of proportions (slower for gross errors, and testing after every answer voids its significance);
//! a base rate from a held-out set (it is not the rate of today's queries); counting against the prediction only (a wrong stand-in
//! then accuses its peers); always counting against both (partners of a wrong instance were sometimes suspected before it).
//!
//! Cold start: no instance is suspected before 200 answers of its peers were compared. Old counts fade, so a new model or other
//! queries are judged by their own rate.

use std::collections::BTreeMap;

use smallvec::SmallVec;

/// The evidence at which an instance is suspect: ln(1e8), for one false alarm in so many comparisons.
const SUSPECT: f64 = 18.42;

/// The share of wrong answers that the test looks for.
const WRONG: f64 = 0.5;

/// Compared answers of the others before an instance is suspected.
const KNOWN: f64 = 200.0;

/// Compared answers of all after which all counts are halved.
const FADES: f64 = 1024.0;

/// Standard errors added to the observed rate, so that a correct instance does not pay for a lucky start of its peers.
const MARGIN: f64 = 3.0;

/// Above this base rate the stand-in is too unreliable for a test.
const USELESS: f64 = 0.9;

/// The difference in evidence at which one instance takes the blame alone: less than one disagreement.
const CLEARLY: f64 = 1.0;

/// The evidence against the instances of a model. `K` names an instance.
#[derive(Clone, Debug, Default)]
pub struct Doubts<K> {
    all: Tally,
    of: BTreeMap<K, Doubt>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Doubt {
    score: f64,
    own: Tally,
}

/// Answers compared.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    compared: f64,
    disagreed: f64,
}

impl<K: Copy + Ord> Doubts<K> {
    /// Answers of two instances to the same query were compared. Each comes with whether no other row of its job was compared before.
    /// Returns the instances that are suspect by this: half as much evidence makes them so again.
    pub fn compared(&mut self, both: [(K, bool); 2], agrees: bool) -> SmallVec<[K; 2]> {
        let score = |(instance, _): (K, bool)| self.of.get(&instance).map_or(0.0, |doubt| doubt.score);
        let [one, other] = both.map(score);
        let blamed = [agrees || one + CLEARLY >= other, agrees || other + CLEARLY >= one];
        let mut suspects = SmallVec::new();
        for ((instance, is_first), _) in both.into_iter().zip(blamed).filter(|(_, blamed)| *blamed) {
            if self.of.entry(instance).or_default().note(agrees, is_first, &self.all) {
                suspects.push(instance);
            }
            self.all.note(agrees);
        }
        if self.all.compared >= FADES {
            self.all.fade();
            self.of.values_mut().for_each(|doubt| doubt.own.fade());
        }
        suspects
    }

    /// An instance is gone, or has another model.
    pub fn forget(&mut self, instance: K) {
        self.of.remove(&instance);
    }

    /// The compared answers of an instance, and those that agreed. Old ones fade.
    pub fn of(&self, instance: K) -> [f64; 2] {
        let own = self.of.get(&instance).map_or(Tally::default(), |doubt| doubt.own);
        [own.compared, own.compared - own.disagreed]
    }
}

impl Doubt {
    /// Adds a compared answer, given the counts of all instances. Says whether the instance is suspect.
    fn note(&mut self, agrees: bool, is_evidence: bool, all: &Tally) -> bool {
        let others = all.without(&self.own);
        self.own.note(agrees);
        if !is_evidence || others.compared < KNOWN {
            return false;
        }
        let base = others.rate();
        if base > USELESS {
            return false;
        }
        let ill = base + (1.0 - base) * WRONG;
        let step = if agrees { (1.0 - ill) / (1.0 - base) } else { ill / base };
        self.score = (self.score + step.ln()).max(0.0);
        let is_suspect = self.score >= SUSPECT;
        if is_suspect {
            self.score = SUSPECT / 2.0;
        }
        is_suspect
    }
}

impl Tally {
    fn note(&mut self, agrees: bool) {
        self.compared += 1.0;
        self.disagreed += f64::from(u8::from(!agrees));
    }

    fn fade(&mut self) {
        self.compared /= 2.0;
        self.disagreed /= 2.0;
    }

    fn without(&self, own: &Tally) -> Tally {
        Tally { compared: self.compared - own.compared, disagreed: self.disagreed - own.disagreed }
    }

    /// The share that disagreed, estimated from above.
    fn rate(&self) -> f64 {
        let rate = (self.disagreed.max(0.0) + 1.0) / (self.compared + 2.0);
        rate + MARGIN * (rate * (1.0 - rate) / self.compared).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((mixed ^ mixed >> 31) >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// Pairs of six instances are compared, until one is suspected: which one, and after how many comparisons. An answer is wrong with
    /// the probability that `wrong` says for the instance, and two answers to a query disagree by themselves with that of `unlike`.
    fn first_suspect(
        comparisons: u64,
        seed: u64,
        unlike: impl Fn(u64) -> f64,
        wrong: impl Fn(u64, usize) -> f64,
    ) -> Option<(usize, u64)> {
        let (mut random, mut doubts) = (Random(seed), Doubts::default());
        for number in 0..comparisons {
            let one = (number % 6) as usize;
            let other = (one + 1 + (random.next() * 5.0) as usize) % 6;
            let is_wrong = [one, other].map(|at| random.next() < wrong(number, at));
            // A wrong answer agrees by chance, one in ten.
            let agrees = if is_wrong == [false, false] {
                random.next() >= unlike(number)
            } else {
                random.next() < 0.1
            };
            if let Some(suspect) = doubts.compared([(one, true), (other, true)], agrees).first() {
                return Some((*suspect, number));
            }
        }
        None
    }

    #[test]
    fn a_million_honest_answers_raise_no_alarm() {
        for (seed, unlike) in [(1, 0.1), (2, 0.02), (3, 0.4), (4, 0.0)] {
            assert_eq!(first_suspect(500_000, seed, |_| unlike, |_, _| 0.0), None, "{unlike}");
        }
    }

    #[test]
    fn the_one_that_goes_wrong_is_found_within_tens_of_its_answers() {
        for seed in 0..50 {
            let wrong = |number, at| if at == 4 && number >= 6000 { 1.0 } else { 0.0 };
            let (suspect, after) = first_suspect(20_000, seed, |_| 0.1, wrong).expect("one is suspected");
            // It is in one of three comparisons.
            assert!(suspect == 4 && (6000..6180).contains(&after), "{suspect} after {after}, seed {seed}");
        }
    }

    #[test]
    fn one_that_is_wrong_from_the_start_is_found() {
        for seed in 0..50 {
            let wrong = |_, at| if at == 2 { 1.0 } else { 0.0 };
            let (suspect, after) = first_suspect(20_000, seed, |_| 0.1, wrong).expect("one is suspected");
            assert!(suspect == 2 && after < 900, "{suspect} after {after}, seed {seed}");
        }
    }

    #[test]
    fn queries_that_are_harder_for_all_make_nobody_suspect() {
        let unlike = |number| if number > 50_000 { 0.2 } else { 0.1 };
        (0..20).for_each(|seed| assert_eq!(first_suspect(100_000, seed, unlike, |_, _| 0.0), None));
    }

    #[test]
    fn rows_of_one_job_are_one_piece_of_evidence() {
        let mut doubts = Doubts::default();
        for _ in 0..200 {
            doubts.compared([(0, true), (1, true)], true);
        }
        let rows = (0..64).filter(|row| !doubts.compared([(2, *row == 0), (1, false)], false).is_empty());
        assert_eq!(rows.count(), 0);
        let jobs = (0..64).find(|_| doubts.compared([(2, true), (1, true)], false)[..] == [2]);
        assert!(jobs.is_some());
        assert_eq!(doubts.of(2)[1], 0.0);
        doubts.forget(2);
        assert_eq!(doubts.of(2), [0.0, 0.0]);
    }
}
