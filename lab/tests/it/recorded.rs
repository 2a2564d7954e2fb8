//! Records a simulated frontend and finds the injected faults in the recording.

use parm_lab::simulator::{Quiet, Run};
use parm_lab::tuner::{Profile, fit};
use parm_settings::{PolicyKind, PoolSettings};
use parm_workload::Faults;
use parm_workload::Pattern;
use parm_workload::Scenario;
use parm_workload::distribution::Distribution;

use crate::support::recorded;

fn run(faults: Faults, policy: PolicyKind) -> Run {
    let settings = PoolSettings { policy, ..PoolSettings::default() };
    let arrivals = Pattern::Poisson.at(450.0);
    Run { seed: 5, queries: 80_000, ..Run::new(arrivals, faults, 18, settings) }
}

fn profile(scenario: &str, policy: PolicyKind) -> Profile {
    let profile = fit(&recorded(&run(Scenario::named(scenario).unwrap().faults, policy))).unwrap();
    eprintln!("{profile}");
    profile
}

fn near(what: &str, found: f64, injected: f64, tolerance: f64) {
    assert!((found / injected - 1.0).abs() < tolerance, "{what}: found {found}, injected {injected}");
}

#[test]
fn stragglers_and_interference_are_distinguished() {
    let profile = profile("AB", PolicyKind::Equal);
    near("median service time", profile.service.time_ms.mean(), 20.0, 0.01);
    let stragglers = profile.stragglers.as_ref().unwrap();
    near("share of stragglers", stragglers.share, 0.005, 0.15);
    near("their factor", stragglers.median_factor, 7.5, 0.1);
    let interference = profile.interference.as_ref().unwrap();
    near("share of interference", interference.share, 1.0 / 24.0, 0.3);
    near("its length", interference.length_ms, 2000.0, 0.1);
    near("its factor", interference.factor, 5.0, 0.05);
    assert_eq!(profile.hangs, None);
    assert_eq!(profile.faults().0.len(), 2);
}

#[test]
fn no_faults_are_found_on_a_clean_cluster() {
    let clean = profile("clean", PolicyKind::Hedge);
    assert_eq!(clean.faults(), Faults::default());
    let varying = profile("lognormal", PolicyKind::Equal);
    assert_eq!(varying.interference, None);
    let share = varying.stragglers.as_ref().map_or(0.0, |stragglers| stragglers.share);
    assert!(share < 2e-4, "{share}");
    let Distribution::Sample { mut values } = varying.service.time_ms else { panic!("it is measured") };
    let p99 = parm_loadgen::statistics::bootstrap::quantile_of(&mut values, 0.99);
    near("p99 of the sample", p99, 20.0 * (2.326f64 * 0.5).exp(), 0.05);
}

#[test]
fn stand_in_cost_is_found_and_separate_from_queries() {
    let profile = profile("clean", PolicyKind::StandIn);
    near("its cost", profile.stand_in.unwrap().of(1), 0.25, 0.05);
    near("median service time", profile.service.time_ms.mean(), 20.0, 0.01);
    assert_eq!(profile.faults(), Faults::default());
    assert_eq!(self::profile("clean", PolicyKind::Hedge).stand_in, None);
}

#[test]
fn interference_is_found_although_slow_instances_get_few_queries() {
    let profile = profile("B", PolicyKind::Hedge);
    let interference = profile.interference.as_ref().unwrap();
    near("factor of interference", interference.factor, 5.0, 0.1);
    // A slow instance gets few queries, so the ends of episodes are imprecise.
    near("share of interference", interference.share, 1.0 / 12.0, 0.5);
    assert_eq!(profile.hangs, None);
}

#[test]
fn simulated_profile_has_the_latency_of_the_original() {
    let original = run(Scenario::named("AB").unwrap().faults, PolicyKind::Equal);
    let recording = recorded(&original);
    let profile = fit(&recording).unwrap();
    let fitted = Run {
        seed: 77,
        arrivals: recording.trace(),
        queries: recording.arrivals.len() as u64,
        service: profile.service.clone(),
        faults: profile.faults(),
        ..original.clone()
    };
    let [before, after] = [original, fitted].map(|run| run.simulate(&Quiet).unwrap().mean().0);
    near("mean latency", after, before, 0.05);
}
