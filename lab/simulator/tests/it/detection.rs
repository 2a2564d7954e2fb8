//! Parities expose instances that return wrong answers, and no others.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_settings::PolicyKind;
use parm_simulator::{Run, Tally};
use parm_workload::{Fault, Faults, Targets, When};

use crate::support::{run, simulate};

/// Six instances, groups of two with one parity each that predicts both members, and these faults.
fn watched(faults: Vec<Fault>, eject: bool) -> Tally {
    let mut run = Run { faults: Faults(faults), queries: 60_000, warm_up: 0, ..run(6, 0.4) };
    run.settings.policy = PolicyKind::ParmPlus;
    run.settings.coding.k = NonZeroU8::new(2).unwrap();
    run.settings.coding.parm_plus.k_follows_load = false;
    run.settings.coding.code = Some("slots".parse().expect("a code"));
    run.settings.coding.detection.enabled = true;
    run.settings.coding.detection.eject = eject;
    simulate(&run)
}

/// From one minute on, this share of instance 4's answers is wrong.
fn wrong(share: f64) -> Vec<Fault> {
    let when = When::Once { at: Duration::from_secs(60), length: Duration::from_secs(1000000) };
    vec![Fault::Wrong { share, when, on: Targets::Only(vec![4]) }]
}

#[test]
fn wrong_instance_is_detected_and_ejected() {
    for share in [0.6, 1.0] {
        let (kept, ejected) = (watched(wrong(share), false), watched(wrong(share), true));
        for tally in [&kept, &ejected] {
            assert_eq!(tally.suspects().keys().copied().collect::<Vec<_>>(), [4], "{:?}", tally.suspects());
        }
        assert!(kept.wrong() > 0.1 * share, "it continued to answer: {}", kept.wrong());
        assert!(ejected.wrong() < 0.01 * share, "it was stopped: {}", ejected.wrong());
    }
}

#[test]
fn approximate_parities_raise_no_suspicion() {
    let well = watched(vec![], true);
    assert!(well.suspects().is_empty(), "{:?}", well.suspects());
    // Slow instances answer late, not wrongly.
    let when = When::Episodes { share: 0.1, length: Duration::from_secs(2) };
    let slow = watched(vec![Fault::Slow { factor: 5.0, when, on: Targets::Each }], true);
    assert!(slow.suspects().is_empty(), "{:?}", slow.suspects());
}
