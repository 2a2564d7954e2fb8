//! Reports are the same on any number of threads, and claim no more than their data supports.

use std::num::NonZeroU64;

use parm_experiments::{Config, Experiment, Report};
use parm_simulator::Quiet;

fn experiment(seed: u64, threads: usize) -> Report {
    let config = Config {
        seed,
        queries: NonZeroU64::new(25_000).unwrap(),
        warm_up: 2_000,
        loads: vec![0.5],
        policies: ["equal", "hedge", "stand-in"].map(str::to_owned).to_vec(),
        scenarios: ["A", "shuffles", "crash"].map(str::to_owned).to_vec(),
        ..Config::default()
    };
    Experiment::new(config).unwrap().run(threads, &Quiet).unwrap()
}

#[test]
fn same_seed_gives_the_same_report_on_any_thread_count() {
    let one = serde_json::to_string(&experiment(7, 1)).unwrap();
    assert_eq!(one, serde_json::to_string(&experiment(7, 3)).unwrap());
    assert_ne!(one, serde_json::to_string(&experiment(8, 3)).unwrap());
}

#[test]
fn gaps_are_compared_with_those_of_equal() {
    let report = experiment(3, 2);
    for row in &report.rows {
        let ratio = row.verdict.gap_ratio.unwrap();
        assert!(ratio.low <= ratio.value && ratio.value <= ratio.high, "{row:?}");
        if row.case.policy == "equal" {
            assert_eq!((ratio.low, ratio.high), (1.0, 1.0), "the same blocks are drawn for both");
        }
        if row.case.policy.starts_with("hedge") && row.case.scenario == "A" {
            assert!(ratio.low > 2.0, "late work is duplicated: {ratio:?}");
        }
    }
    let table = report.to_string();
    assert_eq!(table.lines().count(), report.rows.len() + 2, "{table}");
}

#[test]
fn ungraded_approximate_answers_are_not_called_right() {
    let report = |policies: &[&str]| {
        let config = Config {
            queries: NonZeroU64::new(12_000).unwrap(),
            warm_up: 1_000,
            loads: vec![0.5],
            policies: policies.iter().map(|policy| (*policy).to_owned()).collect(),
            scenarios: vec!["A".into()],
            ..Config::default()
        };
        Experiment::new(config).unwrap().run(2, &Quiet).unwrap()
    };
    let approximate = report(&["stand-in", "parm+", "approximate-backup"]);
    for row in &approximate.rows {
        let right = row.verdict.accuracy;
        assert!(right.exact.is_some(), "{row:?}");
        assert_eq!((right.stand_in, right.reconstructed, right.backup), (None, None, None), "{row:?}");
    }
}

#[test]
fn far_tail_is_unknown_with_too_few_queries() {
    let config = Config {
        queries: NonZeroU64::new(3_000).unwrap(),
        warm_up: 0,
        loads: vec![0.5],
        scenarios: vec!["clean".into()],
        ..Config::default()
    };
    let report = Experiment::new(config).unwrap().run(1, &Quiet).unwrap();
    let verdict = &report.rows[0].verdict;
    assert!(verdict.p99_ms.is_some() && verdict.p999_ms.is_none() && verdict.gap_ratio.is_none());
    assert!(report.to_string().contains("not enough data"));
}
