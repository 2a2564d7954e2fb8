//! The search's winner compared with the whole grid, and the limits that it keeps.

use std::time::Duration;

use parm_lab::simulator::Quiet;
use parm_lab::tuner::{
    Candidate, Coded, Limits, Objective, Plan, Problem, Quality, Report, Search, StandInWorth, to_toml,
};
use parm_settings::PolicyKind;
use parm_workload::Faults;
use parm_workload::Pattern;
use parm_workload::Scenario;
use parm_workload::service::Service;

/// The paper's GPU cluster with fewer codes, so that the test can try the whole grid.
fn problem() -> Problem {
    let coded = |(k, degraded)| Coded { k, r: 1, code: None, degraded };
    Problem {
        slo: Duration::from_millis(40),
        arrivals: Pattern::Poisson.at(270.0),
        service: Service::default(),
        faults: Scenario::named("shuffles").unwrap().faults,
        instances: 18,
        max_batch: 1,
        deadline: Duration::from_secs(10),
        quality: Quality { available: 0.935, codes: [(2, 0.874)].map(coded).to_vec(), ..Quality::default() },
        limits: Limits::default(),
        objective: Objective::Gap,
    }
}

const PLAN: Plan = Plan { seed: 3, queries: 12_000, repeats: 2, threads: 2 };

fn found(problem: &Problem) -> Report {
    eprintln!("seed {}", PLAN.seed);
    let report = Search::new(problem, PLAN).unwrap().run(&Quiet).unwrap();
    eprintln!("{report}");
    report
}

/// The same cluster with a fully known stand-in.
fn with_stand_in(scenario: &str) -> Problem {
    let cost = [0.15, 0.3, 0.6, 1.2];
    let worth = StandInWorth { cost, agreement: 0.94, accuracy: 0.915 };
    let quality = Quality { available: 0.935, stand_in: Some(worth), ..Quality::default() };
    Problem { faults: Scenario::named(scenario).unwrap().faults, quality, ..problem() }
}

#[test]
fn stand_in_is_searched_and_its_price_is_stated() {
    let report = found(&with_stand_in("A"));
    let winner = report.winner().unwrap();
    assert_eq!((winner.policy.as_str(), winner.settings.policy), ("stand-in", PolicyKind::StandIn));
    assert!(winner.score.stand_in > 0.0 && winner.score.accuracy < 0.935, "{:?}", winner.score);
    let said = report.reason.join(" ");
    assert!(said.contains("agrees with 94.0 % of the predictions: nothing was graded"), "{said}");
    assert!(!said.contains("Hedging alone"), "{said}");
    assert!(!report.caveats.iter().any(|caveat| caveat.contains("no stand-in")), "{:?}", report.caveats);
    assert!(to_toml(&report).contains("policy = \"stand-in\""));
    let unknown = found(&problem());
    assert!(unknown.ranked.iter().all(|line| line.policy != "stand-in"));
    assert!(unknown.caveats.iter().any(|caveat| caveat.contains("no stand-in was tried")));
}

#[test]
fn report_says_when_hedging_alone_is_enough() {
    // A single answer of the stand-in reduces the accuracy below that, and copies of everything cost more.
    let limits = Limits { accuracy: Some(0.934_999_9), extra: Some(0.2), ..Limits::default() };
    let report = found(&Problem { limits, ..with_stand_in("A") });
    assert_eq!(report.winner().unwrap().policy, "hedge");
    let said = report.reason.join(" ");
    assert!(said.contains("Hedging alone is enough"), "{said}");
}

#[test]
fn search_is_within_a_tenth_of_the_best() {
    // Further group sizes make a grid that is worth a search.
    let sizes =
        [(3, 0.86), (4, 0.84), (5, 0.82)].map(|(k, degraded)| Coded { k, r: 1, code: None, degraded });
    let mut problem = problem();
    problem.quality.codes.extend(sizes);
    let search = Search::new(&problem, PLAN).unwrap();
    let report = found(&problem);
    let gap = |candidate: &Candidate, seeds: std::ops::Range<u64>, queries| -> f64 {
        let count = seeds.end - seeds.start;
        let gaps = seeds.map(|seed| search.score(candidate, seed, queries).unwrap().gap_ms());
        gaps.sum::<f64>() / count as f64
    };
    let all = search.candidates();
    let short = |candidate| gap(candidate, 3..5, PLAN.queries);
    let best = all.iter().min_by(|a, b| short(a).total_cmp(&short(b))).unwrap();
    let winner = report.winner().unwrap();
    let chosen = all.iter().find(|candidate| candidate.settings == winner.settings).unwrap();
    // The best of many runs is partly there by luck: both are measured again.
    let (own, other) = (gap(chosen, 100..102, 50_000), gap(best, 100..102, 50_000));
    eprintln!("gap of the winner {own:.2} ms, of {} {other:.2} ms", best.label);
    assert!(own <= 1.1 * other, "{own} ms against {other} ms");
}

#[test]
fn same_plan_has_the_same_result_on_any_thread_count() {
    let problem = Problem { faults: Scenario::named("A").unwrap().faults, ..problem() };
    let json = |threads| {
        let report = Search::new(&problem, Plan { threads, ..PLAN }).unwrap().run(&Quiet).unwrap();
        serde_json::to_string(&report).unwrap()
    };
    assert_eq!(json(1), json(3));
}

#[test]
fn limits_are_kept_if_possible_and_otherwise_named() {
    let limits = Limits { extra: Some(0.02), ..Limits::default() };
    let kept = found(&Problem { limits, objective: Objective::Goodput, ..problem() });
    let winner = kept.winner().unwrap();
    assert!(winner.allowed && winner.score.extra <= 0.02, "{kept}");
    let limits = Limits { p999_ms: Some(15.0), ..Limits::default() };
    let broken = found(&Problem { limits, ..problem() });
    assert!(!broken.winner().unwrap().allowed);
    assert!(broken.reason[0].contains("keeps the limits"), "{broken}");
}

#[test]
fn inaccurate_reconstructions_are_not_chosen() {
    let mut problem = Problem { objective: Objective::Goodput, slo: Duration::from_millis(100), ..problem() };
    problem.quality.codes[0].degraded = 0.0;
    let report = found(&problem);
    let winner = report.winner().unwrap();
    assert!(winner.score.reconstructed < 0.01 && winner.score.accuracy > 0.93, "{report}");
}

#[test]
fn clean_cluster_needs_no_redundancy() {
    let report = found(&Problem { faults: Faults::default(), objective: Objective::Goodput, ..problem() });
    let equal = report.ranked.iter().find(|line| line.settings.policy == PolicyKind::Equal).unwrap();
    let winner = report.winner().unwrap();
    assert!(winner.score.goodput - equal.score.goodput < 1e-3, "{report}");
    assert!(winner.score.extra < 0.01, "redundancy without benefit: {report}");
}
