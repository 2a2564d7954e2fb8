//! The reasons for the winner, in words: compared with no redundancy and with the next policy, and its price.

use crate::report::Line;
use crate::{Objective, Problem, StandInWorth};

/// Returns the reasons, in sentences.
pub(crate) fn why(problem: &Problem, ranked: &[Line]) -> Vec<String> {
    let Some(first) = ranked.first() else { return Vec::new() };
    let mut said = Vec::new();
    if !first.allowed {
        said.push(format!(
            "No candidate keeps the limits; {} is nearest. Loosen a limit or add instances.",
            name(first)
        ));
    }
    said.push(wins(problem, first));
    if let Some(baseline) =
        ranked.iter().find(|line| line.policy == "equal").filter(|line| line.policy != first.policy)
    {
        said.push(against_nothing(first, baseline));
    }
    said.extend(price(problem, first));
    said.extend(hedging_will_do(ranked));
    if let Some(second) =
        ranked.iter().skip(1).find(|line| line.policy != first.policy && line.policy != "equal")
    {
        said.push(against_next(problem, first, second));
    }
    if let Some(same) = ranked.iter().skip(1).find(|line| line.tied && line.allowed) {
        said.push(format!("The runs do not distinguish it from {}: use either.", name(same)));
    }
    said
}

/// Returns the limitations of the answer.
pub(crate) fn caveats(problem: &Problem, ranked: &[Line]) -> Vec<String> {
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

fn against_nothing(first: &Line, baseline: &Line) -> String {
    let (name, own, other) = (name(first), first.score, baseline.score);
    let tails = match (first.gap_ms, baseline.gap_ms) {
        (Some(own), Some(other)) if own.value > 0.0 => {
            let (more, less) = (other.value / own.value, own.value / other.value);
            if more >= 1.0 {
                format!("; {name} has a gap from p50 to p99.9 that is {more:.1} times smaller")
            } else {
                format!("; {name} has a gap from p50 to p99.9 that is {less:.1} times larger")
            }
        }
        _ => String::new(),
    };
    format!(
        "Without redundancy on the same instances {:.3} % are in time, and p50 is {:.1} ms against {:.1} ms{tails}.",
        100.0 * other.within,
        other.p50_ms,
        own.p50_ms,
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
             the predictions, {}: nothing was graded here",
            100.0 * score.stand_in,
            score.accuracy,
            100.0 * known.agreement,
            source(known)
        )
    });
    let parts: Vec<String> = [work, answers, stand_in].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("It costs {}.", parts.join("; ")))
}

/// Returns the source of a stand-in's agreement.
fn source(known: StandInWorth) -> &'static str {
    if known.follows { "as follows from the stated accuracies" } else { "as stated" }
}

fn against_next(problem: &Problem, first: &Line, second: &Line) -> String {
    let why = if first.allowed && !second.allowed {
        "breaks a limit".to_owned()
    } else {
        match problem.objective {
            Objective::Goodput => {
                format!("has {:.3} % goodput against {:.3} %", percent(second), percent(first))
            }
            Objective::Tail | Objective::Gap => {
                format!("has a p99.9 of {:.1} ms against {:.1} ms", second.score.p999_ms, first.score.p999_ms)
            }
        }
    };
    format!("The best of another policy, {}, {why}.", name(second))
}

fn percent(line: &Line) -> f64 {
    100.0 * line.score.goodput
}

#[cfg(test)]
mod tests {
    use parm_settings::Cost;

    use super::*;
    use crate::StandInFacts;

    #[test]
    fn agreement_is_called_stated_only_if_it_was() {
        let cost = Some(Cost::linear(0.2));
        let of = |agreement, accuracy| StandInFacts { cost, agreement, accuracy }.worth(0.93).unwrap();
        assert_eq!(source(of(None, Some(0.9))), "as follows from the stated accuracies");
        assert_eq!(source(of(Some(0.97), None)), "as stated");
        assert_eq!(source(of(Some(0.97), Some(0.9))), "as stated");
    }
}
