//! The result of a search: the finalists, ranked, and all candidates. In words, why the first one won, and its price. And the
//! winner as a configuration file of `parm serve`.

use std::fmt;

use parm_loadgen::statistics::{Estimate, student};
use parm_settings::PoolSettings;
use serde::Serialize;
use toml::{Table, Value};

use crate::table;
use crate::tuner::search::{Score, Tried};
use crate::tuner::space::Candidate;
use crate::tuner::{Limits, Objective, Problem};

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
            reason: reasons(problem, &ranked),
            caveats: caveats(problem, &ranked),
            tried: tried.iter().map(point).collect(),
            asked,
            ranked,
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
        let head = "|policy|settings|goodput %|in time %|accuracy|p50 ms|p99.9 ms (95 %)|gap ms|approx %|extra %|busy %";
        let rows = (1..).zip(&self.ranked).map(|(rank, line)| line.cells(rank));
        f.write_str(&table(head, 3, rows.collect()))?;
        writeln!(
            f,
            "= not distinguishable from the first; ! breaks a limit; goodput: in time, weighted by accuracy"
        )?;
        self.reason.iter().try_for_each(|sentence| write!(f, "\n{sentence}"))?;
        self.caveats.iter().try_for_each(|caveat| write!(f, "\nnote: {caveat}"))?;
        write!(f, "\n{} combinations of settings", self.tried.len())
    }
}

impl Line {
    fn cells(&self, rank: usize) -> Vec<String> {
        let mark = match (self.allowed, self.tied && rank > 1) {
            (false, _) => "!",
            (true, true) => "=",
            (true, false) => "",
        };
        let half = |tail: Estimate| tail.low.is_finite().then(|| format!(" ±{:.1}", tail.high - tail.value));
        let tail = |tail: Estimate| format!("{:.1}{}", tail.value, half(tail).unwrap_or_default());
        let Score { goodput, within, accuracy, p50_ms, extra, utilisation, .. } = self.score;
        let approximate = self.score.reconstructed + self.score.stand_in;
        vec![
            format!("{rank:>2}{mark}"),
            self.policy.clone(),
            self.label.clone(),
            format!("{:.3}", 100.0 * goodput),
            format!("{:.3}", 100.0 * within),
            format!("{accuracy:.4}"),
            format!("{p50_ms:.1}"),
            self.p999_ms.map_or("not enough data".into(), tail),
            self.gap_ms.map_or("-".into(), |gap| format!("{:.1}", gap.value)),
            format!("{:.2}", 100.0 * approximate),
            format!("{:.1}", 100.0 * extra),
            format!("{:.1}", 100.0 * utilisation),
        ]
    }
}

/// Returns the reasons, in sentences.
fn reasons(problem: &Problem, ranked: &[Line]) -> Vec<String> {
    let Some(first) = ranked.first() else { return Vec::new() };
    let mut said = Vec::new();
    if !first.allowed {
        said.push(format!(
            "No candidate keeps the limits; {} is nearest. Loosen a limit or add instances.",
            name(first)
        ));
    }
    said.push(wins(problem, first));
    said.extend(price(problem, first));
    said.extend(hedging_will_do(ranked));
    if let Some(same) = ranked.iter().skip(1).find(|line| line.tied && line.allowed) {
        said.push(format!("The runs do not distinguish it from {}: use either.", name(same)));
    }
    said
}

/// Returns the limitations of the answer.
fn caveats(problem: &Problem, ranked: &[Line]) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(values) = problem.sample_is_small() {
        said.push(format!(
            "not enough data for p99.9: {values} service times are measured, 10000 are needed; rarer events are \
             not in the figures"
        ));
    }
    if problem.quality.codes.is_empty() {
        said.push(
            "no coded policy was tried: give a bundle with measured accuracies (--bundle), or accuracies of your own \
             (--degraded)"
                .to_owned(),
        );
    }
    if problem.quality.stand_in.is_none() {
        said.push(
            "no stand-in was tried: its cost (of a bundle, or of a recording made with one) and its agreement or accuracy must \
             be known; --stand-in SHARE=ACCURACY gives both"
                .to_owned(),
        );
    }
    if problem.load() > 0.8 {
        said.push(format!(
            "the instances are {:.0} % busy without faults: queues cause the tail, and more instances help more \
             than any policy",
            100.0 * problem.load()
        ));
    }
    if ranked.first().is_some_and(|first| first.score.failed > 1e-4) {
        said.push(format!("{:.2} % of the queries get no answer at all", 100.0 * ranked[0].score.failed));
    }
    said
}

fn name(line: &Line) -> String {
    if line.label.is_empty() { line.policy.clone() } else { format!("{} ({})", line.policy, line.label) }
}

fn wins(problem: &Problem, first: &Line) -> String {
    let slo = problem.slo.as_secs_f64() * 1e3;
    let what = match problem.objective {
        Objective::Goodput => {
            format!("has the highest goodput, {:.3} %", 100.0 * first.score.goodput)
        }
        Objective::Tail => "has the shortest p99.9".to_owned(),
        Objective::Gap => "has the smallest gap".to_owned(),
    };
    let tail =
        first.p999_ms.map_or(String::new(), |tail| format!(", and 99.9 % within {:.1} ms", tail.value));
    format!(
        "{} {what}: {:.3} % of the queries are answered within {slo} ms{tail}.",
        name(first),
        100.0 * first.score.within
    )
}

/// Whether hedging alone is sufficient, which is simpler to set up.
fn hedging_will_do(ranked: &[Line]) -> Option<String> {
    let (first, hedge) = (ranked.first()?, ranked.iter().find(|line| line.policy == "hedge")?);
    let others = ranked.iter().any(|line| !matches!(line.policy.as_str(), "equal" | "hedge"));
    if !others || !hedge.allowed || first.policy == "equal" {
        return None;
    }
    if first.policy == "hedge" {
        return Some("Hedging alone is enough: no policy with another model did better.".to_owned());
    }
    let name = name(hedge);
    hedge.tied.then(|| format!("Hedging alone is enough: the runs do not distinguish {name} from the first."))
}

fn price(problem: &Problem, first: &Line) -> Option<String> {
    let score = first.score;
    let work = (score.extra > 5e-4).then(|| format!("{:.1} % more executions", 100.0 * score.extra));
    let answers = (score.reconstructed > 5e-6).then(|| {
        format!(
            "{:.2} % of the answers are reconstructions, which leaves an accuracy of {:.4} over all",
            100.0 * score.reconstructed,
            score.accuracy
        )
    });
    let stand_in = problem.quality.stand_in.filter(|_| score.stand_in > 5e-6).map(|known| {
        format!(
            "{:.2} % of the answers are the stand-in's, which leaves an accuracy of {:.4} over all if it agrees with {:.1} % of \
             the predictions: nothing was graded here",
            100.0 * score.stand_in,
            score.accuracy,
            100.0 * known.agreement
        )
    });
    let parts: Vec<String> = [work, answers, stand_in].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("It costs {}.", parts.join("; ")))
}

/// The first line of every written file, which allows the file to be replaced.
pub const MARK: &str = "# Found by `parm tune`";

/// Returns the winner as a configuration file.
pub fn to_toml(report: &Report) -> String {
    let mut text = String::new();
    let Some(winner) = report.winner() else { return text };
    text.push_str(MARK);
    let asked = &report.asked;
    let wanted = format!(
        " for {:.1} queries per second on {} instances and an SLO of {} ms.\n#\n",
        asked.queries_per_second, asked.instances, asked.slo_ms
    );
    text.push_str(&wanted);
    let notes = report.caveats.iter().map(|caveat| format!("note: {caveat}"));
    for line in report.reason.iter().cloned().chain(notes) {
        text.push_str(&format!("# {line}\n"));
    }
    let dispatch = changes(&winner.settings);
    let inner: Table = [("dispatch".to_owned(), Value::Table(dispatch))].into_iter().collect();
    let outer: Table = [("frontend".to_owned(), Value::Table(inner))].into_iter().collect();
    text.push('\n');
    text.push_str(&outer.to_string());
    text
}

/// Returns the policy and all settings that differ from the defaults.
fn changes(settings: &PoolSettings) -> Table {
    let table =
        |settings: &PoolSettings| Table::try_from(settings).expect("every setting has a form in TOML");
    let mut own = differing(table(settings), &table(&PoolSettings::default()));
    let policy = table(settings).remove("policy");
    own.extend(policy.map(|policy| ("policy".to_owned(), policy)));
    // A budget is written completely: its fields have no separate defaults.
    if let Some(hedge) = own.get_mut("hedge").and_then(Value::as_table_mut)
        && hedge.contains_key("budget")
    {
        let budget = Value::try_from(&settings.hedge.budget).expect("every setting has a form in TOML");
        hedge.insert("budget".to_owned(), budget);
    }
    own
}

fn differing(own: Table, usual: &Table) -> Table {
    let entries = own.into_iter().filter_map(|(name, value)| match (value, usual.get(&name)) {
        (Value::Table(own), Some(Value::Table(usual))) => {
            let inner = differing(own, usual);
            (!inner.is_empty()).then_some((name, Value::Table(inner)))
        }
        (value, usual) => (Some(&value) != usual).then_some((name, value)),
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use parm_settings::{Factor, Fraction, PolicyKind};

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

    #[test]
    fn written_settings_parse_to_the_same_settings() {
        let mut settings = PoolSettings { policy: PolicyKind::ParmPlus, ..PoolSettings::default() };
        settings.hedge.budget.ratio = Fraction::percent(5);
        settings.coding.grace.factor = Factor::percent(150);
        settings.coding.parm_plus.k_follows_load = false;
        settings.stand_in.late_factor = Factor::percent(150);
        settings.stand_in.bound = Fraction::percent(2);
        let written = changes(&settings).to_string();
        assert_eq!(toml::from_str::<PoolSettings>(&written).unwrap(), settings, "{written}");
        assert!(!written.contains("queue_limit"), "defaults are left out: {written}");
        let usual = changes(&PoolSettings::default()).to_string();
        assert_eq!(usual.trim(), "policy = \"hedge\"");
    }
}
