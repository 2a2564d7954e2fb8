//! Simulated experiments as grids: shares in separate folders give the report of one process.

use std::num::{NonZeroU32, NonZeroU64};

use parm_experiments::{Config, Experiment, GRID};
use parm_grids::{Folder, join};
use parm_simulator::Quiet;
use tempfile::TempDir;

fn config() -> Config {
    Config {
        queries: NonZeroU64::new(12_000).unwrap(),
        warm_up: 1_000,
        repeats: NonZeroU32::new(2).unwrap(),
        loads: vec![0.5, 0.7],
        policies: ["equal", "hedge", "stand-in"].map(str::to_owned).to_vec(),
        scenarios: vec!["A".into()],
        ..Config::default()
    }
}

#[test]
fn joined_shares_equal_the_report_of_one_process() {
    let root = TempDir::new().unwrap();
    let experiment = Experiment::new(config()).unwrap();
    let cells = experiment.grid().unwrap();
    assert_eq!(cells.len(), 2 * 3 * 2);
    let folders: Vec<_> = (0..3).map(|share| root.path().join(format!("share-{share}"))).collect();
    for (share, path) in folders.iter().enumerate() {
        let folder = Folder::create(path, GRID).unwrap();
        experiment.run_share(&folder, format!("{share}/3").parse().unwrap(), 2, &Quiet).unwrap();
    }
    let joined = join(&folders, GRID, &cells).unwrap();
    assert_eq!((joined.problems.len(), joined.foreign.len()), (0, 0), "{:?}", joined.problems);
    let report = experiment.joined(&joined.records).unwrap();
    let text = |report| serde_json::to_string(&report).unwrap();
    assert_eq!(text(report), text(experiment.run(2, &Quiet).unwrap()));

    // A partial folder gives the rows whose repeats are all there.
    let mut fewer = joined.records.clone();
    fewer.remove(&cells[0].key);
    let rows = experiment.joined(&fewer).unwrap().rows;
    assert_eq!(rows.len(), 2 * 3 - 1);
    assert!(rows[0].verdict.gap_ratio.is_none(), "its baseline is missing");
}

#[test]
fn key_of_a_run_depends_only_on_its_own_settings() {
    let keys = |config: Config| -> Vec<String> {
        Experiment::new(config).unwrap().grid().unwrap().into_iter().map(|cell| cell.key).collect()
    };
    let all = keys(config());
    let one = Config { loads: vec![0.7], policies: vec!["hedge".into()], seed: 2, ..config() };
    let one = Config { repeats: NonZeroU32::MIN, ..one };
    assert_eq!(keys(one), [all[9].clone()], "the second repeat of hedge at 0.7");
    let changed = keys(Config { parity_share: 0.5, ..config() });
    assert!(all.iter().all(|key| !changed.contains(key)));
    let mine = Config::parse("[policy.mine]\ninstances = 3").unwrap();
    let mine = Config { policy: mine.policy, ..config() };
    assert_eq!(keys(mine), all, "the policy is not used");
}
