//! Injects causes of a tail into simulated frontends and finds them in the recordings.

use std::time::Duration;

use parm_lab::simulator::{Quiet, Run};
use parm_lab::tuner::{COUNTS, Cause, Findings, Setup, fit, why};
use parm_settings::{PolicyKind, PoolSettings};
use parm_workload::Pattern;
use parm_workload::arrivals::Arrivals;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{By, Fault, Faults, Targets, When};

use crate::support::recorded;

/// The usual milliseconds of a run.
const MS: f64 = 20.0;

/// Ten instances without faults, at two fifths of their capacity.
fn clean(seed: u64, policy: PolicyKind) -> Run {
    let settings = PoolSettings { policy, ..PoolSettings::default() };
    let time_ms = Distribution::Lognormal { median: MS, sigma: 0.05 };
    let run = Run::new(at(0.4), Faults::default(), 10, settings);
    Run { seed, queries: 60_000, service: Service { time_ms, ..Service::default() }, ..run }
}

/// Arrivals at this share of the capacity of ten instances.
fn at(load: f64) -> Arrivals {
    Pattern::Poisson.at(load * 10.0 * 1e3 / MS)
}

/// The p99.9 of a run, in milliseconds.
fn p999(run: &Run) -> f64 {
    run.simulate(&Quiet).unwrap().quantiles_ms([0.999])[0]
}

fn examined(run: &Run) -> Findings {
    let recording = recorded(run);
    let profile = fit(&recording).unwrap();
    eprintln!("{profile}");
    let setup = Setup { settings: run.settings.clone(), seed: 1, repeats: 3 };
    let findings = why(&recording, &profile, &setup, &Quiet).unwrap();
    eprintln!("{findings}");
    findings
}

/// A run with each cause, and the same run without it. The cause is named first, and its removal predicts p99.9 within a tenth.
#[test]
fn injected_causes_are_named_with_their_costs() {
    let only = || Targets::Only(vec![3]);
    let length = Duration::from_millis(1500);
    let a_while = When::Once { at: Duration::from_secs(60), length: Duration::from_secs(150) };
    let lengths = Distribution::Lognormal { median: 1.0, sigma: 0.5 };
    let stragglers = Distribution::Uniform { min: 4.0, max: 8.0 };
    let instances = vec![3];
    for (cause, policy, fault) in [
        (
            Cause::SlowInstances { instances: instances.clone() },
            PolicyKind::Equal,
            Some(Fault::Slow { factor: 3.0, when: When::Always, on: only() }),
        ),
        (
            Cause::LongInputs,
            PolicyKind::Hedge,
            Some(Fault::Straggle { share: 1.0, factor: lengths, by: By::Query, on: Targets::Each }),
        ),
        (Cause::Queueing, PolicyKind::Equal, None),
        (
            Cause::WideTimes,
            PolicyKind::Equal,
            Some(Fault::Straggle { share: 0.01, factor: stragglers, by: By::Run, on: Targets::Each }),
        ),
        (
            Cause::SlowInstances { instances: instances.clone() },
            PolicyKind::Hedge,
            Some(Fault::Slow { factor: 4.0, when: a_while, on: only() }),
        ),
        (
            Cause::Stalls { instances },
            PolicyKind::Equal,
            Some(Fault::Hang { when: When::Episodes { share: 0.4, length }, on: only() }),
        ),
        (
            Cause::Stalls { instances: vec![] },
            PolicyKind::Equal,
            Some(Fault::Hang { when: When::Episodes { share: 0.07, length }, on: Targets::Each }),
        ),
    ] {
        let mut without = clean(100, policy);
        let mut with = without.clone();
        with.faults.0.extend(fault);
        match cause {
            Cause::Queueing => {
                (with.arrivals, without.arrivals) = (at(0.92), at(0.92));
                without.instances += 1;
            }
            // Without it, each run takes the median.
            Cause::WideTimes => without.service.time_ms = Distribution::Constant { value: MS },
            _ => {}
        }
        let (with_ms, without_ms) = (p999(&with), p999(&without));
        assert!(without_ms <= (1.0 - 1.25 * COUNTS) * with_ms, "{cause:?} has no effect that counts");
        let findings = examined(&with);
        let first = findings.named().next();
        assert_eq!(first.map(|suspect| &suspect.cause), Some(&cause));
        let error = first.map_or(f64::INFINITY, |suspect| suspect.without.p999_ms / without_ms - 1.0);
        assert!(error.abs() <= 0.1, "{cause:?}: {with_ms} ms, {without_ms} ms without, error {error}");
    }
}

#[test]
fn no_cause_is_named_in_clean_runs() {
    for (seed, policy) in [(100, PolicyKind::Equal), (101, PolicyKind::Hedge)] {
        assert_eq!(examined(&clean(seed, policy)).named().count(), 0, "seed {seed}");
    }
}

#[test]
fn causes_that_hide_behind_each_other_are_named_together() {
    let mut run = clean(1, PolicyKind::Equal);
    let factor = Distribution::Uniform { min: 4.0, max: 6.0 };
    run.faults = Faults(vec![
        Fault::Slow { factor: 5.0, when: When::Always, on: Targets::Only(vec![1]) },
        Fault::Straggle { share: 0.01, factor, by: By::Run, on: Targets::Each },
    ]);
    let findings = examined(&run);
    assert_eq!(findings.named().count(), 0);
    let without = findings.together.unwrap().p999_ms;
    assert!(without < 0.4 * findings.replayed.p999_ms, "{without} ms");
    let said = findings.to_string();
    assert!(said.contains("test://1 is 5.0 times slower") && said.contains("Without all of that"), "{said}");
}

#[test]
fn long_inputs_are_not_named_when_the_machine_pauses() {
    let mut run = clean(1, PolicyKind::Hedge);
    run.instances = 6;
    run.arrivals = Pattern::Poisson.at(100.0);
    // Inputs vary and do not matter: each run draws its own time.
    run.service.time_ms = Distribution::Lognormal { median: MS, sigma: 0.15 };
    let slow = Fault::Slow { factor: 2.4, when: When::Always, on: Targets::Only(vec![2]) };
    let pause = |number: u64| Fault::Hang {
        when: When::Once { at: Duration::from_secs(5 * number), length: Duration::from_millis(300) },
        on: Targets::Each,
    };
    run.faults = Faults((1..100).map(pause).chain([slow]).collect());
    let findings = examined(&run);
    let causes: Vec<&Cause> = findings.suspects.iter().map(|suspect| &suspect.cause).collect();
    assert!(!causes.contains(&&Cause::LongInputs), "{causes:?}");
    assert!(causes.contains(&&Cause::SlowInstances { instances: vec![2] }), "{causes:?}");
}
