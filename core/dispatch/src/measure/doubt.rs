//! Sequential test for instances that answer wrongly more often than their peers.
//!
//! Problem: a parity is an approximation, so it disagrees with correct answers too, for example one in ten. The
//! rate depends on the models and on current queries. One disagreement proves nothing.
//!
//! Choice: the base rate is that of the other instances of the pool, which compute the same function. A sequential
//! probability ratio test compares it with the rate that an instance would have if a share of its answers were
//! wrong. The test restarts whenever it is sure that all is well (Page's CUSUM), because an instance may go wrong
//! at any time. With a threshold of `ln(1 / significance)` there is at most one false alarm in `1 / significance`
//! jobs, and an instance that is always wrong is found after about fifteen.
//!
//! One row of each job is evidence. The test assumes independent evidence, but the rows of a job often come from one
//! client, and all of them may be queries on which the approximation is wrong.
//!
//! Rejected: a fixed window and a test of proportions (slower for gross errors, and testing after every answer
//! voids its significance); a base rate from a held-out set (it is not the rate of today's queries).
//!
//! The caller leaves out groups in which no prediction agrees, because then the parity is as suspect as its
//! members. Old counts fade, so a new model or other queries are judged by their own rate.
//!
//! Cold start: no instance is suspected before `min_samples` answers of its peers were compared.

/// The evidence against one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Doubt {
    score: f64,
    own: Tally,
}

/// The parameters of the test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Test {
    /// Chance that an answer of a correct instance raises a false alarm, approximately.
    pub(crate) significance: f64,
    /// Share of wrong answers that the test looks for.
    pub(crate) wrong_share: f64,
    /// Compared answers of the peers before an instance is suspected.
    pub(crate) min_samples: u32,
}

/// Answers compared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    compared: f64,
    disagreed: f64,
}

/// Compared answers of a pool after which all its counts are halved.
const FADE_AT: f64 = 1024.0;

/// Standard errors added to the observed rate, so that a correct instance does not pay for a lucky start of its
/// peers.
const MARGIN: f64 = 3.0;

/// Above this base rate the parities are too unreliable for a test.
const USELESS: f64 = 0.9;

impl Doubt {
    /// Adds a compared answer, given the counts of the whole pool. Returns whether the instance is suspect.
    /// `is_evidence` is false if another row of the answer's job has counted as evidence already.
    pub(crate) fn note(&mut self, agrees: bool, is_evidence: bool, pool: &Tally, test: &Test) -> bool {
        let others = pool.without(&self.own);
        self.own.note(agrees);
        if !is_evidence || others.compared < f64::from(test.min_samples) {
            return false;
        }
        let base = others.rate();
        if base > USELESS {
            return false;
        }
        let ill = base + (1.0 - base) * test.wrong_share;
        let step = if agrees { (1.0 - ill).max(1e-9) / (1.0 - base) } else { ill / base };
        self.score = (self.score + step.ln()).max(0.0);
        let suspect = self.score >= test.threshold();
        if suspect {
            self.score = 0.0;
        }
        suspect
    }

    /// Readmits it after a quarantine: half as much evidence makes it suspect again.
    pub(crate) fn remember(&mut self, test: &Test) {
        self.score = test.threshold() / 2.0;
    }

    /// The evidence against it.
    pub(crate) fn score(&self) -> f64 {
        self.score
    }

    /// Its compared answers, and those that agreed; old ones fade.
    pub(crate) fn compared(&self) -> (f64, f64) {
        (self.own.compared, self.own.compared - self.own.disagreed)
    }

    pub(crate) fn fade(&mut self) {
        self.own.fade();
    }
}

impl Tally {
    pub(crate) fn note(&mut self, agrees: bool) {
        self.compared += 1.0;
        self.disagreed += f64::from(u8::from(!agrees));
    }

    /// Whether the pool's counts are due to fade.
    pub(crate) fn is_old(&self) -> bool {
        self.compared >= FADE_AT
    }

    pub(crate) fn fade(&mut self) {
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

impl Test {
    fn threshold(&self) -> f64 {
        -self.significance.max(1e-300).ln()
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
            ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Answers of six instances in turn, until one is suspected: which one, and after how many of its answers.
    fn first_suspect(answers: u64, seed: u64, rate: impl Fn(u64, usize) -> f64) -> Option<(usize, u64)> {
        eprintln!("seed {seed}");
        let test = Test { significance: 1e-9, wrong_share: 0.5, min_samples: 200 };
        let mut random = Random(seed);
        let (mut doubts, mut pool) = ([Doubt::default(); 6], Tally::default());
        for answer in 0..answers {
            let instance = (answer % 6) as usize;
            let agrees = random.next() >= rate(answer, instance);
            if doubts[instance].note(agrees, true, &pool, &test) {
                return Some((instance, answer / 6));
            }
            pool.note(agrees);
            if pool.is_old() {
                pool.fade();
                doubts.iter_mut().for_each(Doubt::fade);
            }
        }
        None
    }

    #[test]
    fn a_million_honest_answers_raise_no_alarm() {
        for (seed, base) in [(1, 0.1), (2, 0.02), (3, 0.4), (4, 0.0)] {
            assert_eq!(first_suspect(1_000_000, seed, |_, _| base), None, "{base}");
        }
    }

    #[test]
    fn the_one_that_goes_wrong_is_found_within_tens_of_answers() {
        for seed in 0..50 {
            // Wrong answers agree by chance, one in ten.
            let rate = |answer, instance| if instance == 4 && answer > 6000 { 0.9 } else { 0.1 };
            let (suspect, answers) = first_suspect(20_000, seed, rate).expect("an instance is suspected");
            assert_eq!(suspect, 4);
            assert!((1000..1060).contains(&answers), "after {} wrong answers", answers - 1000);
        }
    }

    #[test]
    fn instance_wrong_from_the_start_is_found() {
        for seed in 0..50 {
            let rate = |_, instance| if instance == 2 { 0.9 } else { 0.1 };
            let (suspect, answers) = first_suspect(20_000, seed, rate).expect("an instance is suspected");
            assert!(suspect == 2 && answers < 150, "{suspect} after {answers}");
        }
    }

    #[test]
    fn queries_that_are_harder_for_all_make_nobody_suspect() {
        let rate = |answer, _| if answer > 50_000 { 0.2 } else { 0.1 };
        (0..20).for_each(|seed| assert_eq!(first_suspect(100_000, seed, rate), None));
    }
}
