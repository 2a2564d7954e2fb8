//! The raw data of simulated runs.

use std::num::NonZeroU64;

use parm_experiments::{Config, Experiment, Folder, RAW_COLUMNS};
use parm_simulator::Quiet;
use serde_json::Value;
use tempfile::TempDir;

fn config(policies: &[&str]) -> Config {
    Config {
        queries: NonZeroU64::new(12_000).unwrap(),
        warm_up: 1_000,
        loads: vec![0.5],
        policies: policies.iter().map(|policy| (*policy).to_owned()).collect(),
        scenarios: vec!["A".into()],
        ..Config::default()
    }
}

#[test]
fn raw_data_of_simulations_gives_the_reported_figures() {
    let path = TempDir::new().unwrap();
    let folder = Folder::create(&path.path().join("results")).unwrap();
    let experiment = Experiment::new(config(&["equal", "parm", "stand-in"])).unwrap();
    let report = experiment.run_keeping(2, &Quiet, Some(&folder)).unwrap();
    assert_eq!(report, experiment.run(2, &Quiet).unwrap());
    let runs = std::fs::read_to_string(folder.path().join("runs.jsonl")).unwrap();
    assert_eq!(runs.lines().count(), 3);
    for line in runs.lines() {
        let run: Value = serde_json::from_str(line).unwrap();
        let row = report.rows.iter().find(|row| run["policy"] == row.case.policy).unwrap();
        let coded = row.case.policy == "parm";
        assert_eq!((row.case.k, row.case.r), if coded { (Some(2), Some(1)) } else { (None, None) });
        assert_eq!((&run["k"], &run["r"]), (&row.case.k.into(), &row.case.r.into()), "{line}");
        let raw = std::fs::read_to_string(folder.path().join(run["raw"].as_str().unwrap())).unwrap();
        let mut lines = raw.lines();
        assert_eq!(lines.next().unwrap(), RAW_COLUMNS);
        let fields: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        let mut latencies = Vec::new();
        for (number, fields) in fields.iter().enumerate() {
            let [n, warm_up, _, latency, lag, outcome, right] = fields[..] else { panic!("{fields:?}") };
            assert_eq!(n, number.to_string(), "every query has a line, in order");
            assert_eq!(warm_up, if number < 1_000 { "1" } else { "0" });
            assert_eq!(lag, "0");
            let graded = !["reconstructed", "stand-in"].contains(&outcome);
            assert_eq!(right, if graded { "1" } else { "" }, "{outcome}");
            if warm_up == "0" {
                latencies.push(latency.parse::<u64>().unwrap());
            }
        }
        assert_eq!(latencies.len() as u64, row.verdict.count);
        latencies.sort_unstable();
        let median = latencies[latencies.len() / 2] as f64 / 1e3;
        let reported = row.verdict.p50_ms.unwrap().value;
        assert!((median / reported - 1.0).abs() < 0.01, "{median}, reported {reported}");
    }
}

#[test]
fn query_without_an_answer_is_neither_right_nor_wrong() {
    let path = TempDir::new().unwrap();
    let folder = Folder::create(&path.path().join("results")).unwrap();
    let deadline = std::time::Duration::from_millis(40);
    Experiment::new(Config { deadline, ..config(&["equal"]) })
        .unwrap()
        .run_keeping(2, &Quiet, Some(&folder))
        .unwrap();
    let runs = std::fs::read_to_string(folder.path().join("runs.jsonl")).unwrap();
    let run: Value = serde_json::from_str(&runs).unwrap();
    let raw = std::fs::read_to_string(folder.path().join(run["raw"].as_str().unwrap())).unwrap();
    let ends: Vec<&str> =
        raw.lines().filter_map(|line| line.split_once(",failed,")).map(|(_, right)| right).collect();
    assert!(!ends.is_empty() && ends.iter().all(|right| right.is_empty()), "{ends:?}");
}
