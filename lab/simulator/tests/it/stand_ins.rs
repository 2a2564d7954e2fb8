//! Stand-ins: they mask stragglers, approximate few answers, and expose instances that answer wrongly.
//!
//! 18 instances, 20 ms of service, Poisson arrivals; loads are shares of the capacity of 12 of them. Seeds are fixed.

use std::time::Duration;

use parm_settings::{Cost, PolicyKind};
use parm_simulator::{Answered, Outcome, Quiet, Run, StandIn, Tally, Witness};
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{Fault, Faults, Scenario, Targets, When};

use crate::support::{run, simulate};

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
    fn of(
        policy: PolicyKind,
        scenario: &str,
        (instances, load): (u32, f64),
        change: impl FnOnce(&mut Run),
    ) -> (Self, Tally) {
        let load = load * 12.0 / 18.0;
        let mut run = Run { queries: 42_000, warm_up: 2_000, seed: 11, ..run(instances, load) };
        run.service = Service::default();
        run.faults = Scenario::named(scenario).unwrap().faults;
        run.settings.policy = policy;
        run.settings.ejection.enabled = policy == PolicyKind::StandIn;
        change(&mut run);
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
fn stand_ins_of_quarter_cost_mask_stragglers() {
    let calm = Tail::of(PolicyKind::Equal, "clean", (18, 0.5), |_| ()).0.gap();
    for scenario in ["A", "B", "AB", "hang", "clean"] {
        let (tail, tally) = Tail::of(PolicyKind::StandIn, scenario, (18, 0.5), |_| ());
        let said = format!(
            "{scenario}: {} compared with {calm}, {} extra work, {}",
            tail.gap(),
            tally.extra(),
            tail.share()
        );
        assert!(tail.gap() < 1.4 * calm && tally.extra() < 0.3 && tail.share() < 0.02, "{said}");
    }
}

#[test]
fn late_stand_ins_alone_cost_almost_nothing() {
    for scenario in ["A", "B"] {
        let late = |run: &mut Run| run.settings.stand_in.spare = false;
        let (tail, tally) = Tail::of(PolicyKind::StandIn, scenario, (18, 0.7), late);
        assert!(
            tail.gap() < 10.0 && tally.extra() < 0.03,
            "{scenario}: {} for {}",
            tail.gap(),
            tally.extra()
        );
    }
}

#[test]
fn stand_ins_do_not_harm_a_healthy_cluster() {
    for instances in [2, 3, 6, 18] {
        for load in [0.5, 0.85] {
            let calm = Tail::of(PolicyKind::Equal, "clean", (instances, load), |_| ()).0.gap();
            let own = Tail::of(PolicyKind::StandIn, "clean", (instances, load), |_| ()).0.gap();
            assert!(own < 1.05 * calm, "{instances} at {load}: {own} compared with {calm}");
        }
    }
}

#[test]
fn wide_service_times_cause_few_approximate_answers() {
    let few = |run: &mut Run| run.settings.stand_in.bound_window = std::num::NonZeroU32::new(1000).unwrap();
    let (tail, _) = Tail::of(PolicyKind::StandIn, "lognormal", (18, 0.7), few);
    assert!(tail.approximate.windows(1000).all(|window| window.iter().filter(|given| **given).count() <= 50));
    let exact = Tail::of(PolicyKind::Equal, "lognormal", (18, 0.7), |_| ()).0.gap();
    assert!(tail.share() > 0.01 && tail.gap() < exact, "{} of {}: {}", tail.gap(), exact, tail.share());
}

/// 200 queries per second on instances of 10 ms whose stand-ins agree with 97 of 100 predictions.
fn watched(instances: u32, seed: u64, faults: Vec<Fault>) -> Run {
    let mut run = Run { seed, queries: 10_000, warm_up: 0, faults: Faults(faults), ..run(instances, 0.5) };
    run.arrivals = Arrivals::Poisson { rate: 200.0 };
    run.service =
        Service { time_ms: Distribution::Lognormal { median: 10.0, sigma: 0.05 }, ..Service::default() };
    run.stand_in = StandIn { cost: Cost::linear(0.25), agreement: 0.97 };
    run.settings.policy = PolicyKind::StandIn;
    run.settings.ejection.enabled = true;
    run.deadline = Duration::from_secs(5);
    run
}

#[test]
fn wrong_instance_is_detected_within_a_third_of_a_second() {
    let when = When::Once { at: Duration::from_secs(20), length: Duration::from_secs(1000000) };
    let lies = vec![Fault::Wrong { share: 1.0, when, on: Targets::Only(vec![4]) }];
    for seed in 11..16 {
        let tally = simulate(&watched(6, seed, lies.clone()));
        assert_eq!(tally.suspects().keys().copied().collect::<Vec<_>>(), [4], "{:?}", tally.suspects());
        let wrong = tally.wrong() * 10_000.0;
        // 33 answers per second are its own.
        assert!(wrong <= 12.0, "{wrong} wrong answers");
    }
}

#[test]
fn million_clean_queries_raise_no_suspicion() {
    let tally = simulate(&Run { queries: 1_000_000, ..watched(6, 11, Vec::new()) });
    assert!(tally.suspects().is_empty(), "{:?}", tally.suspects());
}
