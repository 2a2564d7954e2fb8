//! Stand-ins: they mask stragglers, approximate few answers and cost little.
//!
//! 18 instances, 20 ms of service, Poisson arrivals; loads are shares of the capacity of 12 of them. Seeds are fixed.

use parm_settings::PolicyKind;
use parm_simulator::{Answered, Outcome, Quiet, Run, Tally, Witness};
use parm_workload::Scenario;
use parm_workload::service::Service;

use crate::support::run;

/// Latencies in milliseconds, and how many answers were approximate.
#[derive(Debug, Default)]
struct Tail {
    latencies: Vec<f64>,
    approximate: Vec<bool>,
}

impl Witness for Tail {
    fn answered(&mut self, answered: Answered) {
        assert_ne!(answered.outcome, Outcome::Failed);
        self.latencies.push(answered.latency as f64 / 1e6);
        self.approximate.push(answered.outcome.is_approximate());
    }
}

impl Tail {
    fn of(policy: PolicyKind, scenario: &str, (instances, load): (u32, f64)) -> (Self, Tally) {
        let load = load * 12.0 / 18.0;
        let mut run = Run { queries: 42_000, warm_up: 2_000, seed: 11, ..run(instances, load) };
        run.service = Service::default();
        run.faults = Scenario::named(scenario).unwrap().faults;
        run.settings.policy = policy;
        let mut tail = Tail::default();
        let tally = run.watched(&Quiet, &mut tail).unwrap();
        tail.latencies.sort_by(f64::total_cmp);
        (tail, tally)
    }

    fn gap(&self) -> f64 {
        let quantile = |share: f64| self.latencies[(self.latencies.len() as f64 * share) as usize];
        quantile(0.999) - quantile(0.5)
    }

    fn share(&self) -> f64 {
        self.approximate.iter().filter(|approximate| **approximate).count() as f64
            / self.approximate.len() as f64
    }
}

#[test]
fn stand_ins_of_quarter_cost_mask_stragglers_and_cost_almost_nothing() {
    let low = ["A", "B", "AB", "hang", "clean"].map(|scenario| (scenario, 0.5));
    for (scenario, load) in low.into_iter().chain([("A", 0.7), ("B", 0.7)]) {
        let (tail, tally) = Tail::of(PolicyKind::StandIn, scenario, (18, load));
        let said = format!("{scenario} {load}: {} for {}, {}", tail.gap(), tally.extra(), tail.share());
        assert!(tail.gap() < 10.0 && tally.extra() < 0.03 && tail.share() < 0.03, "{said}");
    }
}

#[test]
fn stand_ins_do_not_harm_a_healthy_cluster() {
    for instances in [2, 3, 6, 18] {
        for load in [0.5, 0.85] {
            let calm = Tail::of(PolicyKind::Equal, "clean", (instances, load)).0.gap();
            let own = Tail::of(PolicyKind::StandIn, "clean", (instances, load)).0.gap();
            assert!(own < 1.05 * calm, "{instances} at {load}: {own} compared with {calm}");
        }
    }
}

#[test]
fn wide_service_times_cause_few_approximate_answers() {
    let (tail, _) = Tail::of(PolicyKind::StandIn, "lognormal", (18, 0.7));
    // 420 queries a second: the bound holds for each minute.
    let minute = |window: &[bool]| window.iter().filter(|given| **given).count() as f64 / window.len() as f64;
    let most = tail.approximate.windows(60 * 420).map(minute).fold(0.0, f64::max);
    assert!(most <= 0.051, "{most}");
    let exact = Tail::of(PolicyKind::Equal, "lognormal", (18, 0.7)).0.gap();
    assert!(tail.share() > 0.01 && tail.gap() < exact, "{} of {}: {}", tail.gap(), exact, tail.share());
}
