//! The keys of simulated runs as cells of a grid.

use std::num::{NonZeroU32, NonZeroU64};

use parm_experiments::{Config, Experiment};

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
