//! The result of a search: the finalists, ranked, and all candidates.

use std::fmt;

use parm_loadgen::statistics::{Estimate, student};
use parm_settings::PoolSettings;
use serde::Serialize;

use crate::reason;
use crate::score::Score;
use crate::search::{Effort, Tried};
use crate::space::Candidate;
use crate::{Limits, Objective, Problem};

/// The result of a search.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The request.
    pub asked: Asked,
    /// The finalists, the best first.
    pub ranked: Vec<Line>,
    /// Why the first of them is the first, in sentences.
    pub reason: Vec<String>,
    /// Limitations of the answer.
    pub caveats: Vec<String>,
    /// The effort of the search.
    pub effort: Effort,
    /// Every candidate, with the score of its longest run.
    pub tried: Vec<Point>,
}

/// The request.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs)] // as in `Problem`
pub struct Asked {
    pub slo_ms: f64,
    pub queries_per_second: f64,
    pub instances: u32,
    /// Share of the instances' capacity.
    pub load: f64,
    pub objective: Objective,
    pub limits: Limits,
}

/// A finalist.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The policy.
    pub policy: String,
    /// The choices under it.
    pub label: String,
    /// Means over the runs.
    pub score: Score,
    /// p99.9 with its interval; `None` if there is not enough data.
    pub p999_ms: Option<Estimate>,
    /// The gap p99.9 - p50 with its interval; `None` if there is not enough data.
    pub gap_ms: Option<Estimate>,
    /// Goodput with its interval.
    pub goodput: Estimate,
    /// Whether the runs do not distinguish it from the first.
    pub tied: bool,
    /// Whether it keeps the limits.
    pub allowed: bool,
    /// The dispatch settings.
    pub settings: PoolSettings,
}

/// A candidate.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // as in `Line`
pub struct Point {
    pub policy: String,
    pub label: String,
    pub score: Score,
}

impl Report {
    pub(crate) fn new(
        problem: &Problem,
        candidates: &[Candidate],
        mut finals: Vec<Tried>,
        tried: Vec<Tried>,
        effort: Effort,
    ) -> Self {
        let utility = |tried: &Tried| Score::mean(&tried.scores).utility(problem);
        finals.sort_by(|a, b| utility(b).total_cmp(&utility(a)));
        let first = finals.first().map(|tried| tried.scores.clone()).unwrap_or_default();
        let ranked: Vec<Line> = finals
            .iter()
            .map(|tried| Line::of(problem, &candidates[tried.candidate], tried, &first))
            .collect();
        let point = |tried: &Tried| {
            let Candidate { policy, label, .. } = &candidates[tried.candidate];
            Point { policy: (*policy).to_owned(), label: label.clone(), score: Score::mean(&tried.scores) }
        };
        let asked = Asked {
            slo_ms: problem.slo.as_secs_f64() * 1e3,
            queries_per_second: problem.arrivals.rate(),
            instances: problem.instances,
            load: problem.load(),
            objective: problem.objective,
            limits: problem.limits,
        };
        Self {
            reason: reason::why(problem, &ranked),
            caveats: reason::caveats(problem, &ranked),
            tried: tried.iter().map(point).collect(),
            asked,
            ranked,
            effort,
        }
    }

    /// Returns the best candidate.
    pub fn winner(&self) -> Option<&Line> {
        self.ranked.first()
    }
}

impl Line {
    fn of(problem: &Problem, candidate: &Candidate, tried: &Tried, first: &[Score]) -> Self {
        let score = Score::mean(&tried.scores);
        let enough = problem.sample_is_small().is_none() && score.count >= 1e4;
        let spread = |of: fn(&Score) -> f64| estimate(tried.scores.iter().map(of));
        let utility = |score: &Score| score.utility(problem);
        let behind = estimate(first.iter().zip(&tried.scores).map(|(a, b)| utility(a) - utility(b)));
        Self {
            policy: candidate.policy.to_owned(),
            label: candidate.label.clone(),
            p999_ms: enough.then(|| spread(|score| score.p999_ms)),
            gap_ms: enough.then(|| spread(Score::gap_ms)),
            goodput: spread(|score| score.goodput),
            tied: behind.low <= 0.0,
            allowed: score.beyond(problem) == 0.0,
            settings: candidate.settings.clone(),
            score,
        }
    }
}

/// Returns the mean of some runs and its 95 % interval, which a single run does not have.
fn estimate(values: impl Iterator<Item = f64>) -> Estimate {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    if values.len() < 2 {
        return Estimate { value: mean, low: f64::NEG_INFINITY, high: f64::INFINITY };
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = student::factor(0.95, values.len() - 1) * (variance / count).sqrt();
    Estimate { value: mean, low: mean - half, high: mean + half }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.ranked.iter().map(|line| line.label.len()).max().unwrap_or(0).max(8);
        writeln!(
            f,
            "    {:<18} {:<width$} {:>9} {:>9} {:>8} {:>8} {:>17} {:>8} {:>8} {:>7} {:>7}",
            "policy",
            "settings",
            "goodput %",
            "in time %",
            "accuracy",
            "p50 ms",
            "p99.9 ms (95 %)",
            "gap ms",
            "approx %",
            "extra %",
            "busy %",
        )?;
        for (rank, line) in (1..).zip(&self.ranked) {
            line.write(f, rank, width)?;
        }
        writeln!(
            f,
            "= not distinguishable from the first; ! breaks a limit; goodput: in time, weighted by accuracy"
        )?;
        self.reason.iter().try_for_each(|sentence| write!(f, "\n{sentence}"))?;
        self.caveats.iter().try_for_each(|caveat| write!(f, "\nnote: {caveat}"))?;
        let Effort { runs, queries } = self.effort;
        let count = self.tried.len();
        write!(f, "\n{count} combinations of settings, {runs} runs, {queries} queries simulated")
    }
}

impl Line {
    fn write(&self, f: &mut fmt::Formatter<'_>, rank: usize, width: usize) -> fmt::Result {
        let mark = match (self.allowed, self.tied && rank > 1) {
            (false, _) => '!',
            (true, true) => '=',
            (true, false) => ' ',
        };
        let tail = self.p999_ms.map_or("not enough data".to_owned(), |tail| {
            let within = if tail.low.is_finite() {
                format!(" ±{:.1}", tail.high - tail.value)
            } else {
                String::new()
            };
            format!("{:.1}{within}", tail.value)
        });
        let gap = self.gap_ms.map_or("-".to_owned(), |gap| format!("{:.1}", gap.value));
        let Score { goodput, within, accuracy, p50_ms, extra, utilisation, .. } = self.score;
        let approximate = self.score.reconstructed + self.score.stand_in;
        writeln!(
            f,
            "{rank:>2}{mark} {:<18} {:<width$} {:>9.3} {:>9.3} {accuracy:>8.4} {p50_ms:>8.1} {tail:>17} {gap:>8} {:>8.2} {:>7.1} {:>7.1}",
            self.policy,
            self.label,
            100.0 * goodput,
            100.0 * within,
            100.0 * approximate,
            100.0 * extra,
            100.0 * utilisation,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_that_of_students_t() {
        let estimate = estimate([1.0, 2.0, 3.0, 4.0, 5.0].into_iter());
        // Standard deviation sqrt(2.5), over sqrt 5, times the factor for four degrees of freedom.
        let half = 2.776_445_105_197_799 * (2.5f64 / 5.0).sqrt();
        assert!((estimate.high - 3.0 - half).abs() < 1e-12 && (3.0 - half - estimate.low).abs() < 1e-12);
    }

    #[test]
    fn estimate_of_one_run_has_no_bounds() {
        let estimate = estimate([7.0].into_iter());
        assert_eq!(
            (estimate.value, estimate.low.is_finite(), estimate.high.is_finite()),
            (7.0, false, false)
        );
    }
}
