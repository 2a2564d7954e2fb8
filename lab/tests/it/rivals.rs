//! Rivals and parm in one simulation: what each pays and what it avoids, against cases that can be computed by hand.

use std::num::NonZeroU32;
use std::time::Duration;

use parm_dispatcher::Policy;
use parm_lab::experiments::{Config, Experiment};
use parm_lab::simulator::Quiet;
use parm_lab::world::Plan;
use parm_lab::world::rivals::{RIVALS, Report, Rival, Setup, Simulated};
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{Fault, Faults, Outcome, Scenario, Targets, When};

const MS: Duration = Duration::from_millis(1);

/// Queries of 20 ms, of which so many are always open.
fn closed(servers: u32, open: u32) -> Setup {
    let time_ms = Distribution::Constant { value: 20.0 };
    let plan = Plan {
        service: Service { time_ms, ..Service::default() },
        instances: servers,
        stand_in_cost: Some(0.25),
        ..Plan::new(1, 200, &Scenario::default(), 100.0)
    };
    let simulated = Simulated { closed: NonZeroU32::new(open), message: MS, ..Simulated::default() };
    Setup { simulated, ..Setup::new(plan) }
}

fn rival(name: &str, setup: &Setup) -> Report {
    Setup { rival: Some(Rival::named(name).unwrap()), ..setup.clone() }.run().unwrap()
}

fn parm(policy: Policy, setup: &Setup) -> Report {
    let mut setup = setup.clone();
    setup.plan.settings.policy = policy;
    setup.run().unwrap()
}

#[test]
fn every_contender_pays_for_the_way_there_and_back() {
    let setup = closed(3, 1);
    let rivals = RIVALS.iter().map(|(name, ..)| (*name, rival(name, &setup)));
    let policies = [("none", Policy::NONE), ("hedge", Policy::HEDGE), ("stand-in", Policy::STAND_IN)];
    let policies = policies.map(|(name, policy)| (name, parm(policy, &setup)));
    for (name, report) in rivals.chain(policies) {
        assert_eq!((report.millis(0.0), report.millis(1.0)), (22.0, 22.0), "{name}");
        let exact = report.queries.iter().filter(|query| query.outcome == Outcome::Exact).count();
        assert_eq!((exact, report.queries.len()), (200, 200), "{name}");
    }
}

#[test]
fn pushed_query_waits_at_its_server_and_a_kept_one_for_the_answer() {
    let setup = closed(1, 2);
    // Of two queries at one server, each is sent when the other one's predecessor ends, 2 ms after its run: it waits
    // for the rest of the other run.
    assert_eq!(rival("round-robin", &setup).millis(0.5), 40.0);
    // parm sends a query when the answer of the one before it is there: 22 ms for each.
    assert_eq!(parm(Policy::NONE, &setup).millis(0.5), 44.0);
}

#[test]
fn fixed_hedge_ends_with_the_copy_elsewhere() {
    let (when, on) = (When::Always, Targets::Only(vec![0]));
    let mut setup = closed(3, 1);
    setup.plan.faults = Faults(vec![Fault::Slow { factor: 1000.0, when, on }]);
    let report = rival("round-robin-hedge-40ms", &setup);
    assert_eq!((report.millis(0.25), report.millis(0.75)), (22.0, 62.0), "40 ms, and a run elsewhere");
    let share = report.extra / report.needed;
    assert!(share < 0.02, "copies take the place of runs that never begin: {share}");
    setup.simulated.cancels = true;
    let stops = rival("round-robin-hedge-40ms", &setup);
    let share = stops.extra / stops.needed;
    assert!((share - 0.5).abs() < 0.01, "each run that is stopped had begun: {share}");
}

#[test]
fn query_without_an_answer_counts_with_its_deadline() {
    let mut setup = closed(1, 1);
    (setup.plan.queries, setup.plan.deadline) = (3, 100 * MS);
    setup.plan.faults = Faults(vec![Fault::Hang { when: When::Always, on: Targets::Each }]);
    for report in [rival("round-robin", &setup), parm(Policy::HEDGE, &setup)] {
        assert!(report.queries.iter().all(|query| query.outcome == Outcome::Failed));
        assert_eq!((report.millis(0.0), report.millis(1.0)), (100.0, 100.0));
    }
}

#[test]
fn probes_avoid_a_slow_server() {
    let (when, on) = (When::Always, Targets::Only(vec![0]));
    let mut setup = closed(6, 1);
    setup.simulated.closed = None;
    (setup.plan.queries, setup.plan.warm_up) = (3000, 500);
    setup.plan.faults = Faults(vec![Fault::Slow { factor: 10.0, when, on }]);
    let over =
        |name| rival(name, &setup).counted().iter().filter(|query| query.latency >= 200_000_000).count();
    let (turns, probes) = (over("round-robin"), over("prequal"));
    assert!(turns > 400 && probes < 50, "{turns} and {probes} of 2500 queries were at the slow server");
}

#[test]
fn experiments_select_rivals_and_reject_what_they_do_not_know() {
    let text = "scenarios = [\"sick\"]\nloads = [0.5]\ninstances = 12\nqueries = 3000\nwarm_up = 100\n";
    let config = |more: &str| Config::parse(&format!("{text}{more}"));
    let report = |more: &str| Experiment::new(config(more)?)?.run(1, &Quiet, None);
    let mine = "[policy.mine]\nrival = { placing = { peak-ewma = { choices = 3 } }, hedge = { fixed = { ms = 30 } } }";
    let all = format!("policies = [\"equal\", \"prequal\", \"mine\"]\nfrontends = [1, 3]\n{mine}");
    let names: Vec<_> = report(&all).unwrap().rows.iter().map(|row| row.case.name()).collect();
    let three = ["equal frontends=3", "prequal frontends=3", "mine frontends=3"];
    assert_eq!(names, [["equal", "prequal", "mine"], three].concat());
    let closed = report("policies = [\"c3\"]\nsimulated = { closed = 4 }").unwrap();
    assert_eq!((closed.rows.len(), closed.rows[0].case.intensity()), (1, "4 open".to_owned()));
    for (more, word) in [
        ("policies = [\"parm\"]\nfrontends = [2]", "'parm'"),
        (
            "policies = [\"c3\"]\n[[scenario.sick.faults]]\nkind = \"wrong\"\nshare = 0.1\nwhen = { kind = \"always\" }",
            "crashes",
        ),
    ] {
        let error = report(more).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}
