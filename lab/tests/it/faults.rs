//! Runs under faults, which the dispatcher masks, and what a watcher sees of a run.

use std::num::NonZeroU32;
use std::time::Duration;

use parm_lab::simulator::{Outcome, Run};
use parm_lab::tuner::Recording;
use parm_settings::PolicyKind;
use parm_settings::recording::RecordedRole;
use parm_workload::Scenario;
use parm_workload::{Fault, Faults, Targets, When};

use crate::support::{run, simulate, watched};
use crate::transcript::recorded;

#[test]
fn crashed_instance_loses_its_work_and_recovers() {
    let when = When::Every {
        at: Duration::from_secs(10),
        every: Duration::from_secs(20),
        length: Duration::from_secs(5),
    };
    let crash =
        Fault::Crash { when, on: Targets::Only(vec![0]), slow_start: 1.0, slow_start_for: Duration::ZERO };
    let one = |faults| simulate(&Run { faults: Faults(faults), ..run(2, 0.3) });
    let (well, ill) = (one(vec![]), one(vec![crash]));
    // Lost jobs are retried, so nothing fails; the other instance does all work for a quarter of the time.
    assert_eq!(ill.share(Outcome::Failed), 0.0);
    assert!(ill.mean().0 > 1.05 * well.mean().0);
    let work = ill.utilisation() / well.utilisation();
    assert!((0.99..1.02).contains(&work), "the work is the same except for the lost jobs: {work}");
}

#[test]
fn hung_instance_holds_at_most_its_slots() {
    // It hangs forever from one minute on: without hedging, only one query waits for its deadline.
    let when = When::Once { at: Duration::from_secs(60), length: Duration::from_secs(1000000) };
    let hang = Fault::Hang { when, on: Targets::Only(vec![3]) };
    let rejected = |policy| {
        let mut run = Run { faults: Faults(vec![hang.clone()]), ..run(18, 0.5) };
        run.settings.policy = policy;
        let tally = simulate(&run);
        (tally.share(Outcome::Failed) * tally.count() as f64).round() as u64
    };
    assert_eq!(rejected(PolicyKind::Equal), 1);
    assert_eq!(rejected(PolicyKind::Hedge), 0);
}

#[test]
fn wrong_answers_are_counted_and_have_no_other_effect() {
    let wrong = Fault::Wrong { share: 0.5, when: When::Always, on: Targets::Only(vec![0, 1, 2]) };
    let with = simulate(&Run { faults: Faults(vec![wrong]), ..run(18, 0.9) });
    let without = simulate(&run(18, 0.9));
    assert_eq!(with.mean(), without.mean());
    assert!((with.wrong() - 3.0 / 18.0 * 0.5).abs() < 0.01, "{}", with.wrong());
    assert_eq!(without.wrong(), 0.0);
}

#[test]
fn reconstructions_answer_for_instances_that_hang() {
    let when = When::Episodes { share: 0.05, length: Duration::from_secs(2) };
    let faults = Faults(vec![Fault::Hang { when, on: Targets::Each }]);
    let mut run = Run { faults, ..run(18, 0.3) };
    run.settings.policy = PolicyKind::Parm;
    let tally = simulate(&run);
    assert!(tally.share(Outcome::Reconstructed) > 0.0005);
    assert!((0.3..0.7).contains(&tally.extra()), "a parity for every two queries: {}", tally.extra());
}

/// A parity for every two queries on separate instances, with nothing late: its work is the only addition.
#[test]
fn parity_jobs_take_their_configured_time() {
    let busy = |parity_share: f64| {
        let mut run = Run { parity_share, queries: 40_000, warm_up: 0, ..run(18, 0.2) };
        run.settings.policy = PolicyKind::Parm;
        run.settings.coding.parity_instances = NonZeroU32::new(6);
        let tally = simulate(&run);
        (tally.utilisation(), tally.extra())
    };
    let ((once, extra), (twice, _)) = (busy(1.0), busy(2.0));
    let added = (twice - once) / (once / (1.0 + extra));
    assert!((added - extra).abs() < 0.02, "{once} and {twice} with {extra} parities a query");
    assert!(extra > 0.4, "{extra} parities a query");
}

#[test]
fn watcher_sees_every_query_and_job_and_changes_nothing() {
    let mut run = Run { queries: 5_000, warm_up: 1_000, ..run(18, 0.5) };
    run.faults = Scenario::named("AB").unwrap().faults;
    run.settings.policy = PolicyKind::Hedge;
    let (tally, answered) = watched(&run);
    assert_eq!(tally, simulate(&run));
    assert_eq!(answered.len() as u64, tally.count());
    let hedged = answered.iter().filter(|answered| answered.outcome == Outcome::Hedged).count();
    assert_eq!(hedged as f64 / 4_000.0, tally.share(Outcome::Hedged));
    // Jobs that were overtaken may still run when the last query is answered.
    let Recording { arrivals, jobs, .. } = recorded(&run);
    let copies = jobs.iter().filter(|job| job.role == RecordedRole::Copy).count();
    assert!(arrivals.len() == 5_000 && jobs.len() - copies > 4_980 && copies > 10, "{copies} copies");
    assert!(jobs.iter().all(|job| job.took > 0.0 && job.rows == 1));
}
