//! The order of the policies under interference, on a small scale.
//!
//! 18 instances, 20 ms of service, Poisson arrivals; loads are shares of the capacity of 12 of them. In A, one job in a
//! hundred takes 5 to 10 times as long. In B, every instance is 5 times slower for a twelfth of the time, in spells of
//! about 2 s. Seeds are fixed, so the figures are the same everywhere. The tests compare the gap from the median to the
//! 99.9th percentile.

use std::num::NonZeroU8;

use parm_lab::simulator::{Outcome, Run};
use parm_settings::PolicyKind;
use parm_workload::Scenario;
use parm_workload::service::Service;

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
#[test]
fn parm_plus_is_no_worse_than_hedging() {
    for (scenario, load) in
        ["A", "B", "AB"].into_iter().flat_map(|one| [0.5, 0.7, 0.85].map(|load| (one, load)))
    {
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

/// The tail of a longer run on this many instances, whose service times vary.
fn longer_tail(policy: PolicyKind, scenario: &str, (instances, load): (u32, f64)) -> Tail {
    let mut run = Run { queries: 42_000, warm_up: 2_000, seed: 11, ..run(instances, load * 12.0 / 18.0) };
    run.service = Service::default();
    run.faults = Scenario::named(scenario).unwrap().faults;
    run.settings.policy = policy;
    Tail::of(&run)
}

#[test]
fn stand_ins_of_quarter_cost_mask_stragglers_and_cost_almost_nothing() {
    let low = ["A", "B", "AB", "hang", "clean"].map(|scenario| (scenario, 0.5));
    for (scenario, load) in low.into_iter().chain([("A", 0.7), ("B", 0.7)]) {
        let tail = longer_tail(PolicyKind::StandIn, scenario, (18, load));
        let said = format!("{scenario} {load}: {} for {}, {}", tail.gap(), tail.tally.extra(), tail.share());
        assert!(tail.gap() < 10.0 && tail.tally.extra() < 0.03 && tail.share() < 0.03, "{said}");
    }
}

#[test]
fn stand_ins_do_not_harm_a_healthy_cluster() {
    for instances in [2, 3, 6, 18] {
        for load in [0.5, 0.85] {
            let calm = longer_tail(PolicyKind::Equal, "clean", (instances, load)).gap();
            let own = longer_tail(PolicyKind::StandIn, "clean", (instances, load)).gap();
            assert!(own < 1.05 * calm, "{instances} at {load}: {own} compared with {calm}");
        }
    }
}

#[test]
fn wide_service_times_cause_few_approximate_answers() {
    let own = longer_tail(PolicyKind::StandIn, "lognormal", (18, 0.7));
    // 420 queries a second: the bound holds for each minute.
    let minute = |window: &[bool]| window.iter().filter(|given| **given).count() as f64 / window.len() as f64;
    let most = own.approximate.windows(60 * 420).map(minute).fold(0.0, f64::max);
    assert!(most <= 0.051, "{most}");
    let exact = longer_tail(PolicyKind::Equal, "lognormal", (18, 0.7)).gap();
    assert!(own.share() > 0.01 && own.gap() < exact, "{} of {exact}: {}", own.gap(), own.share());
}
