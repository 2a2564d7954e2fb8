//! The score of a candidate in one run, or in several together.

use parm_settings::PoolSettings;
use parm_simulator::{Answered, Outcome, Progress, Tally, Witness};
use serde::Serialize;

use crate::{Error, Objective, Problem, Quality};

/// The score of a candidate. Shares are of all queries unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Answers within the SLO, each counted at its accuracy.
    pub goodput: f64,
    /// Answers within the SLO.
    pub within: f64,
    /// Mean accuracy of all answers, also late ones.
    pub accuracy: f64,
    /// Median latency.
    pub p50_ms: f64,
    /// The latency that 99 % of the queries do not exceed.
    pub p99_ms: f64,
    /// The latency that 99.9 % of the queries do not exceed.
    pub p999_ms: f64,
    /// Redundant executions as a share of the necessary ones.
    pub extra: f64,
    /// Share of the instances' time that they worked.
    pub utilisation: f64,
    /// Share of the queries that were answered with a reconstruction.
    pub reconstructed: f64,
    /// Share of the queries that were answered by a stand-in.
    pub stand_in: f64,
    /// Share of the queries that were answered by a duplicate.
    pub hedged: f64,
    /// Share of the queries without an answer.
    pub failed: f64,
    /// Queries counted.
    pub count: f64,
}

/// Weight of p99.9 (in SLOs) and of extra executions compared with goodput. A candidate that answers a thousandth more in
/// time is better at any cost; among equals the shorter tail and the fewer executions win.
const NEARLY_EQUAL: f64 = 1e-3;

/// A candidate that breaks a limit ranks behind all that keep them.
const BEYOND: f64 = -1e6;

impl Score {
    /// Simulates some settings.
    pub fn of(
        problem: &Problem,
        settings: &PoolSettings,
        length: Length,
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let run = problem.run(settings.clone(), length.seed, length.queries);
        let mut answers = Answers::new(problem, settings.coding.r.get());
        let tally = run.watched(progress, &mut answers)?;
        Ok(answers.score(&tally))
    }

    /// Returns the mean of several runs.
    pub fn mean(scores: &[Score]) -> Score {
        let of =
            |value: fn(&Score) -> f64| scores.iter().map(value).sum::<f64>() / scores.len().max(1) as f64;
        Score {
            goodput: of(|s| s.goodput),
            within: of(|s| s.within),
            accuracy: of(|s| s.accuracy),
            p50_ms: of(|s| s.p50_ms),
            p99_ms: of(|s| s.p99_ms),
            p999_ms: of(|s| s.p999_ms),
            extra: of(|s| s.extra),
            utilisation: of(|s| s.utilisation),
            reconstructed: of(|s| s.reconstructed),
            stand_in: of(|s| s.stand_in),
            hedged: of(|s| s.hedged),
            failed: of(|s| s.failed),
            count: scores.iter().map(|s| s.count).sum(),
        }
    }

    /// Returns the gap from p50 to p99.9.
    pub fn gap_ms(&self) -> f64 {
        self.p999_ms - self.p50_ms
    }

    /// Returns the number by which candidates are ranked.
    pub fn utility(&self, problem: &Problem) -> f64 {
        let beyond = self.beyond(problem);
        if beyond > 0.0 {
            return BEYOND * (1.0 + beyond);
        }
        let slo_ms = problem.slo.as_secs_f64() * 1e3;
        let cost = NEARLY_EQUAL * self.extra;
        match problem.objective {
            Objective::Goodput => self.goodput - NEARLY_EQUAL * (self.p999_ms / slo_ms).min(10.0) - cost,
            Objective::Tail => -self.p999_ms / slo_ms - cost,
            Objective::Gap => -self.gap_ms() / slo_ms - cost,
        }
    }

    /// Returns how far it exceeds the limits, as the sum of shares of them; 0 within.
    pub fn beyond(&self, problem: &Problem) -> f64 {
        let limits = &problem.limits;
        let over = |value: f64, most: Option<f64>| most.map_or(0.0, |most| (value - most) / most.max(1e-3));
        let under = limits.accuracy.map_or(0.0, |least| (least - self.accuracy) / least.max(1e-3));
        [over(self.p999_ms, limits.p999_ms), over(self.extra, limits.extra), under]
            .iter()
            .map(|distance| distance.max(0.0))
            .sum()
    }
}

/// The seed and the length of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Seed of arrivals, service times and faults.
    pub seed: u64,
    /// Queries, the warm-up included.
    pub queries: u64,
}

/// Collects a run's answers.
struct Answers<'a> {
    slo: u64,
    quality: &'a Quality,
    r: u8,
    within: u64,
    good: f64,
    worth: f64,
    answered: u64,
}

impl<'a> Answers<'a> {
    fn new(problem: &'a Problem, r: u8) -> Self {
        let slo = u64::try_from(problem.slo.as_nanos()).unwrap_or(u64::MAX);
        Self { slo, quality: &problem.quality, r, within: 0, good: 0.0, worth: 0.0, answered: 0 }
    }

    fn score(&self, tally: &Tally) -> Score {
        let share = |part: f64| part / tally.count().max(1) as f64;
        let [p50_ms, p99_ms, p999_ms] = tally.quantiles_ms([0.5, 0.99, 0.999]);
        Score {
            goodput: share(self.good),
            within: share(self.within as f64),
            accuracy: self.worth / self.answered.max(1) as f64,
            p50_ms,
            p99_ms,
            p999_ms,
            extra: tally.extra(),
            utilisation: tally.utilisation(),
            reconstructed: tally.share(Outcome::Reconstructed),
            stand_in: tally.share(Outcome::StandIn),
            hedged: tally.share(Outcome::Hedged),
            failed: tally.share(Outcome::Failed),
            count: tally.count() as f64,
        }
    }
}

impl Witness for Answers<'_> {
    fn answered(&mut self, answered: Answered) {
        if answered.outcome == Outcome::Failed {
            return;
        }
        let worth = self.quality.worth(&answered, self.r);
        self.worth += worth;
        self.answered += 1;
        if answered.latency <= self.slo {
            self.within += 1;
            self.good += worth;
        }
    }
}

#[cfg(test)]
mod tests {
    use parm_workload::clock::Moment;

    use super::*;
    use crate::Limits;
    use crate::problem::tests::paper;

    fn answered(latency_ms: u64, outcome: Outcome) -> Answered {
        let (arrived, latency) = (Moment::START, latency_ms * 1_000_000);
        Answered { number: 0, arrived, latency, outcome, members: 2, wrong: false }
    }

    #[test]
    fn late_answers_and_failures_have_no_value() {
        let problem = paper();
        let mut answers = Answers::new(&problem, 1);
        answers.answered(answered(20, Outcome::Exact));
        answers.answered(answered(39, Outcome::Reconstructed));
        answers.answered(answered(41, Outcome::Hedged));
        answers.answered(answered(5, Outcome::Failed));
        assert_eq!((answers.within, answers.answered), (2, 3));
        assert!((answers.good - (0.935 + 0.874)).abs() < 1e-12);
        assert!((answers.worth - (0.935 + 0.874 + 0.935)).abs() < 1e-12);
    }

    #[test]
    fn candidate_within_the_limits_ranks_first() {
        let limits = Limits { p999_ms: Some(40.0), extra: Some(0.2), accuracy: Some(0.93) };
        let problem = Problem { limits, objective: Objective::Goodput, ..paper() };
        let good = Score { goodput: 0.5, accuracy: 0.93, p999_ms: 39.0, extra: 0.2, ..Score::default() };
        assert_eq!(good.beyond(&problem), 0.0);
        for worse in [
            Score { goodput: 0.9, p999_ms: 41.0, ..good },
            Score { goodput: 0.9, extra: 0.3, ..good },
            Score { goodput: 0.9, accuracy: 0.92, ..good },
        ] {
            assert!(worse.utility(&problem) < good.utility(&problem), "{worse:?}");
            let far = Score { p999_ms: 400.0, ..worse };
            assert!(far.utility(&problem) < worse.utility(&problem), "the nearer one is better");
        }
    }

    #[test]
    fn equal_goodput_is_ranked_by_tail_and_then_by_executions() {
        let problem = Problem { objective: Objective::Goodput, ..paper() };
        let one = Score { goodput: 0.9, p999_ms: 30.0, extra: 0.1, ..Score::default() };
        let utility = |score: Score| score.utility(&problem);
        assert!(utility(Score { p999_ms: 35.0, ..one }) < utility(one));
        assert!(utility(Score { extra: 0.2, ..one }) < utility(one));
        assert!(utility(Score { goodput: 0.91, p999_ms: 60.0, extra: 0.5, ..one }) > utility(one));
    }
}
