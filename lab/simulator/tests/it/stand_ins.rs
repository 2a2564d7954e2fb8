//! Stand-ins: they mask stragglers, approximate few answers and cost little.
//!
//! 18 instances, 20 ms of service, Poisson arrivals; loads are shares of the capacity of 12 of them. Seeds are fixed.

use parm_settings::PolicyKind;
use parm_simulator::Run;
use parm_workload::Scenario;
use parm_workload::service::Service;

use crate::support::{Tail, run};

fn tail(policy: PolicyKind, scenario: &str, (instances, load): (u32, f64)) -> Tail {
    let load = load * 12.0 / 18.0;
    let mut run = Run { queries: 42_000, warm_up: 2_000, seed: 11, ..run(instances, load) };
    run.service = Service::default();
    run.faults = Scenario::named(scenario).unwrap().faults;
    run.settings.policy = policy;
    Tail::of(&run)
}

#[test]
fn stand_ins_of_quarter_cost_mask_stragglers_and_cost_almost_nothing() {
    let low = ["A", "B", "AB", "hang", "clean"].map(|scenario| (scenario, 0.5));
    for (scenario, load) in low.into_iter().chain([("A", 0.7), ("B", 0.7)]) {
        let tail = tail(PolicyKind::StandIn, scenario, (18, load));
        let said = format!("{scenario} {load}: {} for {}, {}", tail.gap(), tail.tally.extra(), tail.share());
        assert!(tail.gap() < 10.0 && tail.tally.extra() < 0.03 && tail.share() < 0.03, "{said}");
    }
}

#[test]
fn stand_ins_do_not_harm_a_healthy_cluster() {
    for instances in [2, 3, 6, 18] {
        for load in [0.5, 0.85] {
            let calm = tail(PolicyKind::Equal, "clean", (instances, load)).gap();
            let own = tail(PolicyKind::StandIn, "clean", (instances, load)).gap();
            assert!(own < 1.05 * calm, "{instances} at {load}: {own} compared with {calm}");
        }
    }
}

#[test]
fn wide_service_times_cause_few_approximate_answers() {
    let own = tail(PolicyKind::StandIn, "lognormal", (18, 0.7));
    // 420 queries a second: the bound holds for each minute.
    let minute = |window: &[bool]| window.iter().filter(|given| **given).count() as f64 / window.len() as f64;
    let most = own.approximate.windows(60 * 420).map(minute).fold(0.0, f64::max);
    assert!(most <= 0.051, "{most}");
    let exact = tail(PolicyKind::Equal, "lognormal", (18, 0.7)).gap();
    assert!(own.share() > 0.01 && own.gap() < exact, "{} of {exact}: {}", own.gap(), own.share());
}
