//! The search: successive halving from all candidates in short runs to a few in long runs.
//!
//! Most of the grid is visibly bad after a few seconds of virtual time. Every candidate of a stage has the same arrivals,
//! service times and faults, so that runs differ only by the settings (common random numbers). The best candidate of every
//! policy goes on, which limits the influence of short runs.
//!
//! Rejected: a model of the objective (Bayesian optimisation), which pays if a run takes hours; here it takes a second.

use std::collections::{BTreeMap, BTreeSet};

use parm_settings::PoolSettings;
use serde::Serialize;

use crate::Error;
use crate::simulator::{Answered, Outcome, Progress, Quiet, Tally, parallel};
use crate::tuner::report::Report;
use crate::tuner::space::{Candidate, candidates};
use crate::tuner::{Objective, Problem, Quality};

/// The size of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Seed of the first run; each further run adds one.
    pub seed: u64,
    /// Queries of a run of the last stage.
    pub queries: u64,
    /// Runs of every candidate in the last stage, each with a seed of its own.
    pub repeats: u32,
    /// Concurrent runs; the result does not depend on their number.
    pub threads: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { seed: 1, queries: 400_000, repeats: 5, threads: 1 }
    }
}

/// A search for the best of all candidates.
pub struct Search<'a> {
    problem: &'a Problem,
    candidates: Vec<Candidate>,
    plan: Plan,
}

/// A candidate, by its number, and its scores, run by run.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub(crate) candidate: usize,
    pub(crate) scores: Vec<Score>,
}

/// Each stage's runs are this many times as long as the previous stage's.
const LONGER: u64 = 3;
/// One candidate in this many goes on to the next stage.
const KEPT: usize = 3;
/// Stages of single runs before the last.
const STAGES: u32 = 3;
/// Candidates of the last stage in addition to the best of every policy.
const FINALISTS: usize = 4;
/// Queries in the shortest run: ten beyond p99.9.
const SHORTEST: u64 = 12_000;

impl<'a> Search<'a> {
    /// Creates a search; rejects a problem that cannot be solved.
    pub fn new(problem: &'a Problem, plan: Plan) -> Result<Self, Error> {
        problem.check()?;
        if problem.queries(plan.queries) < SHORTEST {
            return Err(Error::FewQueries { queries: problem.queries(plan.queries), least: SHORTEST });
        }
        let asks_for_tail = problem.objective != Objective::Goodput || problem.limits.p999_ms.is_some();
        if let (Some(values), true) = (problem.sample_is_small(), asks_for_tail) {
            return Err(Error::SmallSample { values });
        }
        Ok(Self { problem, candidates: candidates(problem), plan })
    }

    /// Returns all candidates; the first one is the baseline.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Returns the estimated number of queries; the real number is never smaller.
    pub fn queries(&self) -> u64 {
        let (mut count, mut total) = (self.candidates.len() as u64, 0);
        for stage in 0..STAGES {
            total += count * self.length(stage);
            count = count.div_ceil(KEPT as u64);
        }
        let policies: BTreeSet<_> = self.candidates.iter().map(|candidate| candidate.policy).collect();
        let finalists = (FINALISTS + policies.len()) as u64;
        total + finalists * u64::from(self.plan.repeats) * self.problem.queries(self.plan.queries)
    }

    /// Runs the search.
    pub fn run(&self, progress: &dyn Progress) -> Result<Report, Error> {
        let mut known: BTreeMap<usize, Tried> = BTreeMap::new();
        let mut stage: Vec<usize> = (0..self.candidates.len()).collect();
        for number in 0..STAGES {
            let tried = self.try_all(&stage, 1, self.length(number), progress)?;
            stage = self.kept(self.ranked(tried.iter().collect()), stage.len().div_ceil(KEPT));
            known.extend(tried.into_iter().map(|tried| (tried.candidate, tried)));
        }
        stage = self.kept(stage, FINALISTS);
        // The baseline is always among them.
        if !stage.contains(&0) {
            stage.push(0);
        }
        let Plan { repeats, queries, .. } = self.plan;
        let finals = self.try_all(&stage, repeats as usize, queries, progress)?;
        known.extend(finals.iter().map(|tried| (tried.candidate, tried.clone())));
        Ok(Report::new(self.problem, &self.candidates, finals, known.into_values().collect()))
    }

    /// Scores a candidate in one run.
    pub fn score(&self, candidate: &Candidate, seed: u64, queries: u64) -> Result<Score, Error> {
        Score::of(self.problem, &candidate.settings, seed, queries, &Quiet)
    }

    fn length(&self, stage: u32) -> u64 {
        let queries = self.problem.queries(self.plan.queries);
        (queries / LONGER.pow(STAGES - stage)).clamp(SHORTEST, queries)
    }

    /// Returns the candidates, the best first.
    fn ranked(&self, mut tried: Vec<&Tried>) -> Vec<usize> {
        tried.sort_by(|a, b| self.utility(b).total_cmp(&self.utility(a)));
        tried.into_iter().map(|tried| tried.candidate).collect()
    }

    /// Keeps the first `count` of ranked candidates, and the first of every policy.
    fn kept(&self, ranked: Vec<usize>, count: usize) -> Vec<usize> {
        let mut policies = BTreeSet::new();
        let mut is_kept =
            |rank, candidate: usize| policies.insert(self.candidates[candidate].policy) || rank < count;
        let kept = ranked.into_iter().enumerate().filter(|(rank, candidate)| is_kept(*rank, *candidate));
        kept.map(|(_, candidate)| candidate).collect()
    }

    fn utility(&self, tried: &Tried) -> f64 {
        Score::mean(&tried.scores).utility(self.problem)
    }

    /// Runs each candidate this often with so many queries.
    fn try_all(
        &self,
        candidates: &[usize],
        repeats: usize,
        queries: u64,
        progress: &dyn Progress,
    ) -> Result<Vec<Tried>, Error> {
        let queries = self.problem.queries(queries);
        let scores = parallel(candidates.len() * repeats, self.plan.threads, |run| {
            let settings = &self.candidates[candidates[run / repeats]].settings;
            let seed = self.plan.seed.wrapping_add((run % repeats) as u64);
            Score::of(self.problem, settings, seed, queries, progress)
        })?;
        let of = candidates.iter().zip(scores.chunks(repeats));
        Ok(of.map(|(of, scores)| Tried { candidate: *of, scores: scores.to_vec() }).collect())
    }
}

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
    /// Simulates some settings with so many queries, the warm-up included.
    fn of(
        problem: &Problem,
        settings: &PoolSettings,
        seed: u64,
        queries: u64,
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let run = problem.run(settings.clone(), seed, queries);
        let mut answers = Answers::new(problem, settings.coding.r.get());
        let tally = run.watched(progress, &mut |answered| {
            if answered.counted {
                answers.add(&answered);
            }
        })?;
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

impl Answers<'_> {
    fn add(&mut self, answered: &Answered) {
        if answered.outcome == Outcome::Failed {
            return;
        }
        let worth = self.quality.worth(answered, self.r);
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
    use parm_workload::Time;

    use super::*;
    use crate::tuner::Limits;
    use crate::tuner::problem::tests::paper;

    fn answered(latency_ms: u64, outcome: Outcome) -> Answered {
        let (arrived, latency) = (Time::ZERO, latency_ms * 1_000_000);
        Answered { number: 0, counted: true, arrived, latency, outcome, members: 2, wrong: false }
    }

    #[test]
    fn late_answers_and_failures_have_no_value() {
        let problem = paper();
        let mut answers = Answers::new(&problem, 1);
        answers.add(&answered(20, Outcome::Exact));
        answers.add(&answered(39, Outcome::Reconstructed));
        answers.add(&answered(41, Outcome::Hedged));
        answers.add(&answered(5, Outcome::Failed));
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
