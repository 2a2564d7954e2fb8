//! Records a simulated frontend and finds the injected faults in the recording.

use parm_lab::simulator::{Quiet, Run};
use parm_lab::tuner::{Profile, Recording, fit};
use parm_settings::{PolicyKind, PoolSettings};
use parm_workload::Pattern;
use parm_workload::Scenario;
use parm_workload::distribution::Distribution;
use parm_workload::{Fault, Faults, Targets, When};

use crate::transcript::recorded;

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
fn hangs_are_found_by_their_delayed_jobs() {
    let profile = profile("hang", PolicyKind::Hedge);
    let hangs = profile.hangs.unwrap();
    near("length of a hang", hangs.length_ms, 3000.0, 0.05);
    near("share of hangs", hangs.share, 0.1, 0.25);
    assert_eq!(profile.interference, None);
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
fn simulated_profile_has_the_tail_of_the_original() {
    let original = run(Scenario::named("AB").unwrap().faults, PolicyKind::Equal);
    let recording = recorded(&original);
    let profile = fit(&recording).unwrap();
    let fitted = refitted(&original, &recording, &profile);
    let [before, after] = [original, fitted].map(|run| run.simulate(&Quiet).unwrap().mean().0);
    near("mean latency", after, before, 0.05);
}

/// A run with the arrivals of a recording and its fitted service times and faults.
fn refitted(original: &Run, recording: &Recording, profile: &Profile) -> Run {
    Run {
        seed: 77,
        arrivals: recording.trace(),
        queries: recording.arrivals.len() as u64,
        service: profile.service.clone(),
        faults: profile.faults(),
        ..original.clone()
    }
}

/// The p99 and the p99.9 of a run, in milliseconds.
fn tails(run: &Run) -> [f64; 2] {
    run.simulate(&Quiet).unwrap().quantiles_ms([0.99, 0.999])
}

#[test]
fn instance_that_is_slow_for_good_keeps_the_tail() {
    for factor in [1.6, 2.4, 5.0] {
        for policy in [PolicyKind::Equal, PolicyKind::Hedge] {
            let slow = Fault::Slow { factor, when: When::Always, on: Targets::Only(vec![2]) };
            let mut original =
                Run { arrivals: Pattern::Poisson.at(150.0), ..run(Faults(vec![slow]), policy) };
            original.instances = 6;
            let recording = recorded(&original);
            let profile = fit(&recording).unwrap();
            eprintln!("{factor} {policy:?}: {profile}");
            let own: Vec<u32> = profile.lasting.iter().map(|lasting| lasting.instance).collect();
            assert_eq!(own, [2]);
            near("its factor", profile.lasting[0].factor, factor, 0.03);
            assert_eq!(profile.faults().0.len(), 1, "nothing else is wrong: {:?}", profile.faults());
            let fitted = refitted(&original, &recording, &profile);
            let ([p99, p999], [fitted_p99, fitted_p999]) = (tails(&original), tails(&fitted));
            near("p99", fitted_p99, p99, 0.1);
            near("p99.9", fitted_p999, p999, 0.1);
        }
    }
}
