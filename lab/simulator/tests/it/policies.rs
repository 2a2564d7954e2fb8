//! The order of the policies under interference, on a small scale.
//!
//! 18 instances, 20 ms of service, Poisson arrivals; loads are shares of the capacity of 12 of them. In A, one job in a
//! hundred takes 5 to 10 times as long. In B, every instance is 5 times slower for a twelfth of the time, in spells of
//! about 2 s. Seeds are fixed, so the figures are the same everywhere. The tests compare the gap from the median to the
//! 99.9th percentile.

use std::num::NonZeroU8;

use parm_settings::PolicyKind;
use parm_simulator::{Outcome, Run};
use parm_workload::Scenario;

use crate::support::{Tail, run};

fn tail(policy: PolicyKind, scenario: &str, load: f64) -> Tail {
    let mut run = Run { queries: 27_000, warm_up: 2_000, seed: 11, ..run(18, load * 12.0 / 18.0) };
    run.faults = Scenario::named(scenario).unwrap().faults;
    run.settings.policy = policy;
    run.settings.coding.k_choices = (3..=4).filter_map(NonZeroU8::new).collect();
    let tail = Tail::of(&run);
    assert_eq!(tail.tally.count(), 25_000, "{policy:?} {scenario} {load}");
    tail
}

#[test]
fn parm_beats_equal_at_low_load_and_loses_at_high_load() {
    let gap = |policy, load| tail(policy, "A", load).gap();
    assert!(gap(PolicyKind::Parm, 0.5) < gap(PolicyKind::Equal, 0.5) / 5.0);
    let gap = |policy, load| tail(policy, "B", load).gap();
    assert!(gap(PolicyKind::Parm, 0.85) > gap(PolicyKind::Equal, 0.85) * 1.5);
}

/// A sixth of the instances takes 1.6 times as long all the time.
#[test]
fn hedging_wastes_no_work_on_instances_that_stay_slower() {
    let tail = |policy| tail(policy, "hosts", 0.75);
    let (equal, hedge) = (tail(PolicyKind::Equal), tail(PolicyKind::Hedge));
    assert!(hedge.gap() * 1.2 < equal.gap(), "{} {}", hedge.gap(), equal.gap());
    // Copies that no query waits for show now and then how slow these instances still are.
    assert!(hedge.tally.extra() < 0.02, "{}", hedge.tally.extra());
}

/// The median does not grow either, and few answers are reconstructed unnecessarily.
fn parm_plus_is_no_worse_than_hedging(scenario: &str) {
    for load in [0.5, 0.7, 0.85] {
        let tail = |policy| tail(policy, scenario, load);
        let (plus, hedge) = (tail(PolicyKind::ParmPlus), tail(PolicyKind::Hedge));
        let said = format!(
            "{scenario} {load}: {} {} {} {}",
            plus.gap(),
            hedge.gap(),
            plus.quantile(0.5),
            hedge.quantile(0.5)
        );
        assert!(plus.gap() <= hedge.gap() * 1.001, "{said}");
        assert!(load > 0.5 || plus.gap() * 2.0 < hedge.gap(), "{said}");
        assert!(plus.quantile(0.5) <= hedge.quantile(0.5) * 1.03, "{said}");
        assert!(plus.tally.share(Outcome::Reconstructed) < 0.03, "{said}");
    }
}

#[test]
fn parm_plus_is_no_worse_than_hedging_with_single_stragglers() {
    parm_plus_is_no_worse_than_hedging("A");
}

#[test]
fn parm_plus_is_no_worse_than_hedging_with_slow_spells() {
    parm_plus_is_no_worse_than_hedging("B");
}

#[test]
fn parm_plus_is_no_worse_than_hedging_with_both() {
    parm_plus_is_no_worse_than_hedging("AB");
}
