//! Rivals and parm in one simulation: what each pays and what it avoids, against cases that can be computed by hand.

use std::time::Duration;

use parm_dispatcher::Policy;
use parm_lab::world::rivals::{CONTENDERS, Contender, Placing, Setup, named};
use parm_lab::world::{Plan, Reply, World};
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{Fault, Faults, Scenario, Targets, When};

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
    Setup { closed: Some(open), network: MS, ..Setup::new(plan) }
}

#[test]
fn every_contender_pays_for_the_way_there_and_back() {
    for (name, contender) in CONTENDERS {
        let report = closed(3, 1).run(*contender).unwrap();
        assert_eq!((report.millis(0.0), report.millis(1.0)), (22.0, 22.0), "{name}");
        assert_eq!((report.failed, report.latencies.len()), (0.0, 200), "{name}");
    }
}

#[test]
fn pushed_query_waits_at_its_server_and_a_kept_one_for_the_answer() {
    let last = |contender| closed(1, 2).run(contender).unwrap().millis(0.5);
    // Of two queries at one server, each is sent when the other one's predecessor ends, 2 ms after its run: it waits
    // for the rest of the other run.
    assert_eq!(last(Contender::Rival(Placing::RoundRobin, None)), 40.0);
    // parm sends a query when the answer of the one before it is there: 22 ms for each.
    assert_eq!(last(Contender::Parm(Policy::NONE)), 44.0);
}

#[test]
fn fixed_hedge_ends_with_the_copy_elsewhere() {
    let (when, on) = (When::Always, Targets::Only(vec![0]));
    let mut setup = closed(3, 1);
    setup.plan.faults = Faults(vec![Fault::Slow { factor: 1000.0, when, on }]);
    let report = setup.run(named("round robin, fixed hedge").unwrap()).unwrap();
    assert_eq!((report.millis(0.25), report.millis(0.75)), (22.0, 62.0), "40 ms, and a run elsewhere");
    assert!(report.extra.abs() < 0.02, "copies take the place of runs that never begin: {}", report.extra);
    setup.cancels = true;
    let stops = setup.run(named("round robin, fixed hedge").unwrap()).unwrap();
    assert!((stops.extra - 0.5).abs() < 0.01, "each run that is stopped had begun: {}", stops.extra);
}

#[test]
fn query_without_an_answer_counts_with_its_deadline() {
    let mut setup = closed(1, 1);
    (setup.plan.queries, setup.plan.deadline) = (3, 100 * MS);
    setup.plan.faults = Faults(vec![Fault::Hang { when: When::Always, on: Targets::Each }]);
    for name in ["round robin", "hedge"] {
        let report = setup.run(named(name).unwrap()).unwrap();
        assert_eq!((report.failed, report.millis(0.0), report.millis(1.0)), (1.0, 100.0, 100.0), "{name}");
    }
}

#[test]
fn parm_is_the_same_here_as_in_its_own_world() {
    for (policy, profile) in [(Policy::NONE, "sick"), (Policy::HEDGE, "A+hang"), (Policy::STAND_IN, "B")] {
        let scenario = Scenario::named(profile).unwrap();
        let mut plan = Plan::new(1, 20_000, &scenario, 420.0);
        plan.settings.policy = policy;
        plan.stand_in_cost = policy.stand_in.map(|_| 0.25);
        let here = Setup::new(plan.clone()).run(Contender::Parm(policy)).unwrap();
        let mut world = World::new(&plan).unwrap();
        while world.advance() {}
        let took = |reply: &Reply| {
            let late = if reply.result.is_err() { plan.deadline } else { Duration::ZERO };
            reply.at.since(reply.arrived).max(late).as_nanos() as u64
        };
        let mut there: Vec<u64> = world.replies.iter().map(took).collect();
        there.sort_unstable();
        assert_eq!(here.latencies, there, "{profile}");
    }
}

#[test]
fn probes_avoid_a_slow_server() {
    let (when, on) = (When::Always, Targets::Only(vec![0]));
    let mut setup = Setup { closed: None, ..closed(6, 1) };
    (setup.plan.queries, setup.plan.warm_up) = (3000, 500);
    setup.plan.faults = Faults(vec![Fault::Slow { factor: 10.0, when, on }]);
    let over = |name: &str| {
        let report = setup.run(named(name).unwrap()).unwrap();
        report.latencies.iter().filter(|nanos| **nanos >= 200_000_000).count()
    };
    let (turns, probes) = (over("round robin"), over("Prequal 0.84"));
    assert!(turns > 400 && probes < 50, "{turns} and {probes} of 2500 queries were at the slow server");
}
