//! The search: successive halving from all candidates in short runs to a few in long runs.
//!
//! Most of the grid is visibly bad after a few seconds of virtual time. Every candidate of a stage has the same arrivals,
//! service times and faults, so that runs differ only by the settings (common random numbers). The best candidate of every
//! policy goes on, which limits the influence of short runs.
//!
//! Rejected: a model of the objective (Bayesian optimisation), which pays if a run takes hours; here it takes a second.

use std::collections::{BTreeMap, BTreeSet};

use parm_simulator::{Progress, parallel};
use serde::Serialize;

use crate::report::Report;
use crate::score::{Length, Score};
use crate::space::{Candidate, candidates};
use crate::{Error, Objective, Problem};

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

/// The effort of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Effort {
    /// Runs.
    pub runs: u64,
    /// Queries in them.
    pub queries: u64,
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

/// Number and length of the runs of each candidate in a stage.
#[derive(Clone, Copy)]
struct Runs {
    repeats: u32,
    queries: u64,
}

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
        let mut effort = Effort::default();
        let mut known: BTreeMap<usize, Tried> = BTreeMap::new();
        let mut stage: Vec<usize> = (0..self.candidates.len()).collect();
        for number in 0..STAGES {
            let runs = Runs { repeats: 1, queries: self.length(number) };
            let tried = self.try_all(&stage, runs, progress, &mut effort)?;
            stage = self.best(&tried, stage.len().div_ceil(KEPT));
            known.extend(tried.into_iter().map(|tried| (tried.candidate, tried)));
        }
        stage = self.finalists(stage);
        let whole = Runs { repeats: self.plan.repeats, queries: self.plan.queries };
        let finals = self.try_all(&stage, whole, progress, &mut effort)?;
        known.extend(finals.iter().map(|tried| (tried.candidate, tried.clone())));
        Ok(Report::new(self.problem, &self.candidates, finals, known.into_values().collect(), effort))
    }

    /// Scores a candidate in one run.
    pub fn score(&self, candidate: &Candidate, seed: u64, queries: u64) -> Result<Score, Error> {
        Score::of(self.problem, &candidate.settings, Length { seed, queries }, &parm_simulator::Quiet)
    }

    fn length(&self, stage: u32) -> u64 {
        let queries = self.problem.queries(self.plan.queries);
        (queries / LONGER.pow(STAGES - stage)).clamp(SHORTEST, queries)
    }

    /// Returns the best `count`, and the best of every policy.
    fn best(&self, tried: &[Tried], count: usize) -> Vec<usize> {
        let mut ranked: Vec<&Tried> = tried.iter().collect();
        ranked.sort_by(|a, b| self.utility(b).total_cmp(&self.utility(a)));
        let mut policies = BTreeSet::new();
        let mut kept = Vec::new();
        for (rank, tried) in ranked.into_iter().enumerate() {
            if policies.insert(self.candidates[tried.candidate].policy) || rank < count {
                kept.push(tried.candidate);
            }
        }
        kept
    }

    /// Returns the first few of a ranked stage, the best of every policy, and the baseline.
    fn finalists(&self, ranked: Vec<usize>) -> Vec<usize> {
        let mut policies = BTreeSet::new();
        let mut kept = Vec::new();
        for candidate in ranked {
            let first = policies.insert(self.candidates[candidate].policy);
            if first || kept.len() < FINALISTS {
                kept.push(candidate);
            }
        }
        if !kept.contains(&0) {
            kept.push(0);
        }
        kept
    }

    fn utility(&self, tried: &Tried) -> f64 {
        Score::mean(&tried.scores).utility(self.problem)
    }

    fn try_all(
        &self,
        candidates: &[usize],
        Runs { repeats, queries }: Runs,
        progress: &dyn Progress,
        effort: &mut Effort,
    ) -> Result<Vec<Tried>, Error> {
        let queries = self.problem.queries(queries);
        let repeats = repeats as usize;
        let scores = parallel(candidates.len() * repeats, self.plan.threads, |run| {
            let settings = &self.candidates[candidates[run / repeats]].settings;
            let seed = self.plan.seed.wrapping_add((run % repeats) as u64);
            Score::of(self.problem, settings, Length { seed, queries }, progress)
        })?;
        effort.runs += scores.len() as u64;
        effort.queries += scores.len() as u64 * queries;
        let of = candidates.iter().zip(scores.chunks(repeats));
        Ok(of.map(|(of, scores)| Tried { candidate: *of, scores: scores.to_vec() }).collect())
    }
}
