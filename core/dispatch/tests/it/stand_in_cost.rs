//! Costs of stand-ins on instances of different speeds.

use std::time::Duration;

use parm_dispatch::{Accept, Action, Event, InstanceId, Role, Served};
use parm_settings::{Cost, Fraction, Placement, PolicyKind, PoolSettings};

use super::script::one_by_one;
use super::servers::{Servers, Started, ms};
use super::world::POOL;

/// The cost that workers measured, all on machines of one kind.
const TOLD: f64 = 0.1;

fn standing_in() -> PoolSettings {
    let mut settings = PoolSettings { policy: PolicyKind::StandIn, ..one_by_one() };
    settings.stand_in.hedge = false;
    settings
}

fn of_one_row(cost: Option<Cost>) -> f64 {
    cost.expect("the pool has a stand-in").rows[0]
}

/// Servers with these times, whose stand-ins take a tenth, after twelve seconds of queries one by one.
fn after_a_while(takes: &[u64]) -> Servers {
    let mut servers = Servers::new(standing_in(), takes);
    servers.stand_ins_take(TOLD);
    servers.send(Event::StandInCost(POOL, Cost::linear(TOLD)));
    servers.load(1, ms(40), Duration::from_secs(12));
    servers
}

#[test]
fn stand_in_cost_is_that_of_equal_speeds() {
    // Queries run on the fast instance, and stand-ins on idle ones.
    let servers = after_a_while(&[20, 48, 48]);
    let cost = of_one_row(servers.status().stand_in_cost);
    assert!((cost - TOLD).abs() < 0.1 * TOLD, "{cost}");
    // Queries run on all of them, if they are equal.
    let cost = of_one_row(after_a_while(&[20, 20, 20]).status().stand_in_cost);
    assert!((cost - TOLD).abs() < 0.1 * TOLD, "{cost}");
}

#[test]
fn cost_apart_has_the_speed_of_its_instances() {
    let mut servers = after_a_while(&[20, 20]);
    assert_eq!(servers.status().stand_in_cost_apart, None, "all instances have the model");
    servers.join_serving(9, vec![Served::stand_in(POOL)], 60);
    for _ in 0..40 {
        // Both instances hang for so long that the third one answers.
        [1, 2].iter().for_each(|hanging| servers.takes(*hanging, 200));
        servers.queries(2);
        servers.pass(ms(300));
        [1, 2].iter().for_each(|hanging| servers.takes(*hanging, 20));
        servers.load(2, ms(40), ms(800));
    }
    let status = servers.status();
    let (cost, apart) = (of_one_row(status.stand_in_cost), of_one_row(status.stand_in_cost_apart));
    assert!((cost - TOLD).abs() < 0.1 * TOLD, "{cost}");
    assert!((apart - 3.0 * TOLD).abs() < 0.3 * TOLD, "{apart}");
}

#[test]
fn stand_ins_of_a_fast_instance_may_take_the_usual_time() {
    let mut settings = PoolSettings { placement: Placement::Turns, ..standing_in() };
    settings.stand_in.spare = false;
    settings.ejection.least_in_service = Fraction::percent(100);
    // One of three is slow for so long that the times of stand-ins are known: they take as long as the model.
    let mut servers = Servers::new(settings, &[20, 20, 100]);
    servers.load(3, ms(200), Duration::from_secs(6));
    // Two of three are slow, and no stand-in runs for a while.
    [2, 3].into_iter().for_each(|slow| servers.takes(slow, 70));
    servers.accept = Accept::Exact;
    servers.load(3, ms(200), Duration::from_secs(4));
    servers.accept = Accept::Any;
    let from = servers.world.now;
    servers.load(3, ms(200), ms(600));
    let on_the_fast = |job: &Started| job.instance == 1 && matches!(job.role, Role::StandIn(_));
    assert!(servers.started(from).filter(on_the_fast).count() > 3);
    let mut late = servers.world.log.iter().filter(|(at, _)| *at >= from);
    let blamed = late.find(|(_, action)| matches!(action, Action::Kept(InstanceId(1), ..)));
    assert_eq!(blamed, None);
}
