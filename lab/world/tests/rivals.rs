//! Rivals and parm in one simulation: what each pays and what it avoids, against cases that can be computed by hand.

use std::time::Duration;

use parm_dispatcher::{ModelSettings, Policy};
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{Fault, Faults, Pattern, Scenario, Targets, When};
use parm_world::Plan;
use parm_world::rivals::{CONTENDERS, Contender, Load, Placing, Setup, named};

const MS: Duration = Duration::from_millis(1);

fn setup(servers: u32, load: Load) -> Setup {
    let time_ms = Distribution::Constant { value: 20.0 };
    Setup {
        seed: 1,
        queries: 200,
        warm_up: 0,
        load,
        faults: Faults::default(),
        service: Service { time_ms, ..Service::default() },
        servers,
        lanes: 1,
        slots: 1,
        clients: 1,
        network: MS,
        deadline: 10_000 * MS,
        cancels: false,
        hedges: ModelSettings::default().hedges,
        stand_in_cost: 0.25,
    }
}

#[test]
fn every_contender_pays_for_the_way_there_and_back() {
    for (name, contender) in CONTENDERS {
        let report = setup(3, Load::Closed(1)).run(*contender).unwrap();
        assert_eq!((report.millis(0.0), report.millis(1.0)), (22.0, 22.0), "{name}");
        assert_eq!((report.failed, report.latencies.len()), (0.0, 200), "{name}");
    }
}

#[test]
fn pushed_query_waits_at_its_server_and_a_kept_one_for_the_answer() {
    let last = |contender| setup(1, Load::Closed(2)).run(contender).unwrap().millis(0.5);
    // Of two queries at one server, each is sent when the other one's predecessor ends, 2 ms after its run: it waits
    // for the rest of the other run.
    assert_eq!(last(Contender::Rival(Placing::RoundRobin, None)), 40.0);
    // parm sends a query when the answer of the one before it is there: 22 ms for each.
    assert_eq!(last(Contender::Parm(Policy::NONE)), 44.0);
}

#[test]
fn fixed_hedge_ends_with_the_copy_elsewhere() {
    let (when, on) = (When::Always, Targets::Only(vec![0]));
    let mut setup = setup(3, Load::Closed(1));
    setup.faults = Faults(vec![Fault::Slow { factor: 1000.0, when, on }]);
    let report = setup.run(named("round robin, fixed hedge").unwrap()).unwrap();
    assert_eq!((report.millis(0.25), report.millis(0.75)), (22.0, 62.0), "40 ms, and a run elsewhere");
    assert!(report.extra.abs() < 0.02, "copies take the place of runs that never begin: {}", report.extra);
    setup.cancels = true;
    let stops = setup.run(named("round robin, fixed hedge").unwrap()).unwrap();
    assert!((stops.extra - 0.5).abs() < 0.01, "each run that is stopped had begun: {}", stops.extra);
}

#[test]
fn query_without_an_answer_counts_with_its_deadline() {
    let mut setup = setup(1, Load::Closed(1));
    (setup.queries, setup.deadline) = (3, 100 * MS);
    setup.faults = Faults(vec![Fault::Hang { when: When::Always, on: Targets::Each }]);
    for name in ["round robin", "hedge"] {
        let report = setup.run(named(name).unwrap()).unwrap();
        assert_eq!((report.failed, report.millis(0.0), report.millis(1.0)), (1.0, 100.0, 100.0), "{name}");
    }
}

#[test]
fn parm_is_the_same_here_as_in_its_own_world() {
    for (policy, profile) in [(Policy::NONE, "sick"), (Policy::HEDGE, "A+hang"), (Policy::STAND_IN, "B")] {
        let scenario = Scenario::named(profile).unwrap();
        let setup = Setup {
            queries: 20_000,
            load: Load::Open(scenario.at(Pattern::Poisson, 420.0)),
            faults: scenario.faults.clone(),
            service: Service::default(),
            network: Duration::ZERO,
            ..setup(12, Load::Closed(1))
        };
        let plan = Plan {
            settings: ModelSettings { policy, hedges: setup.hedges, ..ModelSettings::default() },
            stand_in_cost: policy.stand_in.map(|_| setup.stand_in_cost),
            deadline: setup.deadline,
            ..Plan::new(setup.seed, setup.queries, &scenario, 420.0)
        };
        let (here, there) = (setup.run(Contender::Parm(policy)).unwrap(), plan.run().unwrap());
        assert_eq!(here.latencies, there.latencies, "{profile}");
    }
}

#[test]
fn probes_avoid_a_slow_server() {
    let (when, on) = (When::Always, Targets::Only(vec![0]));
    let mut setup = setup(6, Load::Open(Pattern::Poisson.at(100.0)));
    (setup.queries, setup.warm_up) = (3000, 500);
    setup.faults = Faults(vec![Fault::Slow { factor: 10.0, when, on }]);
    let over = |name: &str| {
        let report = setup.run(named(name).unwrap()).unwrap();
        report.latencies.iter().filter(|nanos| **nanos >= 200_000_000).count()
    };
    let (turns, probes) = (over("round robin"), over("Prequal 0.84"));
    assert!(turns > 400 && probes < 50, "{turns} and {probes} of 2500 queries were at the slow server");
}
