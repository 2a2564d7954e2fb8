//! A foreign server says nothing about how many requests it runs at a time. What it costs to allow it many, and to learn the number.

use parm_lab::world::{Plan, World};
use parm_workload::Scenario;

/// The p99.9 in ms of four servers of 20 ms that run so many jobs side by side, at 0.7 of their capacity, behind 64 slots for each.
fn tail(lanes: usize, learns: bool) -> f64 {
    let scenario = Scenario::named("clean").expect("it is built in");
    let per_second = 0.7 * 4.0 * lanes as f64 / 0.02;
    let plan = Plan { instances: 4, slots: 64, ..Plan::new(11, 40_000, &scenario, per_second) };
    let mut world = World::new(&plan).expect("the plan is valid");
    (world.lanes, world.learns) = (lanes, learns);
    for server in 0..4 {
        world.leave(server);
        world.join(server, plan.slots);
    }
    let mut latencies = Vec::new();
    while world.advance() {
        for reply in world.replies.drain(..).filter(|reply| reply.query.payload >= 10_000) {
            latencies.push(reply.at.since(reply.arrived).as_secs_f64() * 1e3);
        }
    }
    latencies.sort_by(f64::total_cmp);
    latencies[latencies.len() * 999 / 1000]
}

#[allow(clippy::print_stdout, reason = "the figures are for a person")]
#[test]
fn limit_is_learned_of_servers_that_run_one_request_at_a_time_and_of_those_that_run_many() {
    for (lanes, most) in [(1, 0.2), (16, 1.1)] {
        let [learned, open] = [true, false].map(|learns| tail(lanes, learns));
        println!("{lanes} at a time: {learned:.1} ms with learning, {open:.1} ms with 64 slots");
        assert!(learned < most * open, "{lanes} at a time: {learned} ms, and {open} ms without");
    }
}
