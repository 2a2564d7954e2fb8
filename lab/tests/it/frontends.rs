//! Several frontends over the same servers: no query is lost, and the tail is nearly that of one frontend.

use std::num::NonZeroU16;
use std::time::Duration;

use parm_dispatcher::Policy;
use parm_lab::world::Plan;
use parm_lab::world::rivals::{Setup, Simulated};
use parm_workload::{Random, Scenario};

fn plan(seed: u64, profile: &str, load: f64, queries: u64) -> Plan {
    let scenario = Scenario::named(profile).expect("it is built in");
    Plan { warm_up: queries / 10, ..Plan::new(seed, queries, &scenario, load * 12.0 / 0.02) }
}

#[test]
fn tail_of_three_frontends_is_nearly_that_of_one() {
    for (profile, load) in [("clean", 0.5), ("clean", 0.7), ("sick", 0.5), ("sick", 0.7)] {
        let plan = plan(1, profile, load, 30_000);
        let gap = |frontends, grants| {
            let simulated = Simulated { message: Duration::from_micros(100), ..Simulated::default() };
            let setup = Setup { clients: frontends, simulated, grants, ..Setup::new(plan.clone()) };
            let report = setup.run().expect("the plan is valid");
            report.millis(0.999) - report.millis(0.5)
        };
        let (one, three, apart) = (gap(1, false), gap(3, true), gap(3, false));
        assert!(three <= 1.25 * one, "{profile} {load}: {one} ms, {three} ms with three");
        assert!(three < 0.9 * apart, "{profile} {load}: grants help: {three} ms, {apart} ms without");
    }
}

#[test]
fn no_query_is_lost_between_frontends() {
    let profiles = ["clean", "sick", "A", "B", "hang", "hosts+A", "heal+hang"];
    let policies = [Policy::NONE, Policy::HEDGE, Policy::STAND_IN, Policy::REPLICATE];
    for seed in 0..40 {
        let mut draw = Random::of(seed, [3]);
        let profile = profiles[draw.below(profiles.len())];
        let mut plan = plan(seed, profile, 0.2 + 0.9 * draw.uniform(), 2000);
        let policy = policies[draw.below(policies.len())];
        plan.settings.policy = policy;
        plan.stand_in_cost = policy.stand_in.map(|_| 0.25);
        plan.instances = 2 + draw.below(11) as u32;
        plan.slots = 1 + draw.below(3) as u16;
        plan.deadline = Duration::from_millis(200 + draw.below(3000) as u64);
        let message = Duration::from_micros(draw.below(2000) as u64);
        let clients = 2 + draw.below(3) as u32;
        let lanes = NonZeroU16::new(plan.slots).expect("there is one at least");
        let simulated = Simulated { message, lanes, ..Simulated::default() };
        let setup = Setup { clients, simulated, grants: true, ..Setup::new(plan.clone()) };
        let report = setup.run().expect("the plan is valid");
        let all = report.queries.len() as u64;
        assert_eq!(all, plan.queries, "seed {seed}: {profile}, {policy:?}, {clients} frontends");
        let longest = report.queries.iter().map(|ended| ended.latency).max().unwrap_or(0);
        assert!(u128::from(longest) <= plan.deadline.as_nanos(), "seed {seed}: a reply after its deadline");
    }
}
