//! Experiments as a user runs them: their reports, raw data and grids, and the files that are ready to run.

use std::fs;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;
use std::time::Duration;

use parm_lab::experiments::{Config, Experiment, Folder, RAW_COLUMNS, Report};
use parm_lab::simulator::Quiet;
use serde_json::Value;
use tempfile::TempDir;

/// Policies under A at half of the capacity.
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

fn report(config: Config, threads: usize) -> Report {
    Experiment::new(config).unwrap().run(threads, &Quiet, None).unwrap()
}

fn three_scenarios(seed: u64, threads: usize) -> Report {
    let scenarios = ["A", "shuffles", "crash"].map(str::to_owned).to_vec();
    let queries = NonZeroU64::new(25_000).unwrap();
    report(
        Config { seed, queries, warm_up: 2_000, scenarios, ..config(&["equal", "hedge", "stand-in"]) },
        threads,
    )
}

#[test]
fn every_ready_file_is_a_valid_experiment() {
    let mut checked = 0;
    for folder in ["experiments", "experiments/rivals"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        for path in files.filter(|path| path.extension().is_some_and(|end| end == "toml")) {
            let mut config = Config::parse(&fs::read_to_string(&path).unwrap()).unwrap();
            config.read_files(&folder).unwrap();
            let experiment = Experiment::new(config);
            assert!(experiment.is_ok(), "{}: {:?}", path.display(), experiment.err());
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked} files");
}

#[test]
fn same_seed_gives_the_same_report_on_any_thread_count() {
    let one = serde_json::to_string(&three_scenarios(7, 1)).unwrap();
    assert_eq!(one, serde_json::to_string(&three_scenarios(7, 3)).unwrap());
    assert_ne!(one, serde_json::to_string(&three_scenarios(8, 3)).unwrap());
}

#[test]
fn gaps_are_compared_with_those_of_equal() {
    let report = three_scenarios(3, 2);
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
    let approximate = report(config(&["stand-in", "parm+", "approximate-backup"]), 2);
    for row in &approximate.rows {
        let right = row.verdict.accuracy;
        assert!(right.exact.is_some(), "{row:?}");
        assert_eq!((right.stand_in, right.reconstructed, right.backup), (None, None, None), "{row:?}");
    }
}

#[test]
fn far_tail_is_unknown_with_too_few_queries() {
    let queries = NonZeroU64::new(3_000).unwrap();
    let report = report(Config { queries, warm_up: 0, ..config(&["equal"]) }, 1);
    let verdict = &report.rows[0].verdict;
    assert!(verdict.p99_ms.is_some() && verdict.p999_ms.is_none() && verdict.gap_ratio.is_none());
    assert!(report.to_string().contains("not enough data"));
}

#[test]
fn raw_data_of_simulations_gives_the_reported_figures() {
    let path = TempDir::new().unwrap();
    let folder = Folder::create(&path.path().join("results")).unwrap();
    // Stragglers have no answer in time.
    let deadline = Duration::from_millis(80);
    let config = Config { deadline, ..config(&["equal", "parm", "stand-in"]) };
    let experiment = Experiment::new(config).unwrap();
    let report = experiment.run(2, &Quiet, Some(&folder)).unwrap();
    assert_eq!(report, experiment.run(2, &Quiet, None).unwrap());
    let runs = fs::read_to_string(folder.path().join("runs.jsonl")).unwrap();
    assert_eq!(runs.lines().count(), 3);
    let mut failed = 0;
    for line in runs.lines() {
        let run: Value = serde_json::from_str(line).unwrap();
        let row = report.rows.iter().find(|row| run["policy"] == row.case.policy).unwrap();
        let coded = row.case.policy == "parm";
        assert_eq!((row.case.k, row.case.r), if coded { (Some(2), Some(1)) } else { (None, None) });
        assert_eq!((&run["k"], &run["r"]), (&row.case.k.into(), &row.case.r.into()), "{line}");
        let raw = fs::read_to_string(folder.path().join(run["raw"].as_str().unwrap())).unwrap();
        let mut lines = raw.lines();
        assert_eq!(lines.next().unwrap(), RAW_COLUMNS);
        let fields: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        let mut latencies = Vec::new();
        for (number, fields) in fields.iter().enumerate() {
            let [n, warm_up, _, latency, lag, outcome, right] = fields[..] else { panic!("{fields:?}") };
            assert_eq!(n, number.to_string(), "every query has a line, in order");
            assert_eq!(warm_up, if number < 1_000 { "1" } else { "0" });
            assert_eq!(lag, "0");
            failed += u32::from(outcome == "failed");
            let graded = !["reconstructed", "stand-in", "failed"].contains(&outcome);
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
    assert!(failed > 0, "a query without an answer is neither right nor wrong");
}

#[test]
fn key_of_a_run_depends_only_on_its_own_settings() {
    let keys = |config: Config| -> Vec<String> {
        Experiment::new(config).unwrap().grid().unwrap().into_iter().map(|cell| cell.key).collect()
    };
    let two = |policies: &[&str]| Config {
        repeats: NonZeroU32::new(2).unwrap(),
        loads: vec![0.5, 0.7],
        ..config(policies)
    };
    let config = || two(&["equal", "hedge", "stand-in"]);
    let all = keys(config());
    let one = Config { loads: vec![0.7], seed: 2, repeats: NonZeroU32::MIN, ..two(&["hedge"]) };
    assert_eq!(keys(one), [all[9].clone()], "the second repeat of hedge at 0.7");
    let changed = keys(Config { parity_share: 0.5, ..config() });
    assert!(all.iter().all(|key| !changed.contains(key)));
    let mine = Config::parse("[policy.mine]\ninstances = 3").unwrap();
    assert_eq!(keys(Config { policy: mine.policy, ..config() }), all, "the policy is not used");
}
