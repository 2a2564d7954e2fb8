//! What operators are told: the instance at fault within five seconds, its return within ten, and no healthy instance ever.

use std::time::Duration;

use parm_dispatcher::{Action, Condition, Failure, ModelSettings, Policy, Time};
use parm_lab::world::{Event, Plan, World};
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;
use parm_workload::{Fault, Faults, Scenario, Targets, When};

const FROM: u64 = 20;
const UNTIL: u64 = 60;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Three servers of 60 to 140 ms at twelve requests a second for a hundred seconds. Returns what was told, with its second.
fn told(
    seed: u64,
    policy: Policy,
    fault: Option<Fault>,
    refuses: impl Fn(f64) -> Option<Failure>,
) -> Vec<(f64, usize, Condition)> {
    let scenario = Scenario::named("clean").expect("it is built in");
    let plan = Plan {
        faults: Faults(fault.into_iter().collect()),
        service: Service { time_ms: Distribution::Uniform { min: 60.0, max: 140.0 }, ..Service::default() },
        instances: 3,
        settings: ModelSettings { policy, ..ModelSettings::default() },
        deadline: seconds(20),
        ..Plan::new(seed, 1200, &scenario, 12.0)
    };
    let mut world = World::new(&plan).expect("the plan is valid");
    world.cancels = true;
    let second = |at: Time| at.as_nanos() as f64 / 1e9;
    let mut told = Vec::new();
    while world.advance() {
        world.replies.clear();
        for event in std::mem::take(&mut world.log) {
            if let Event::Asks(Action::Tell { instance, condition }) = event {
                told.extend(world.server(instance).map(|server| (second(world.now), server, condition)));
            }
        }
        match refuses(second(world.now)) {
            Some(failure) => world.refusing.insert(0, failure),
            None => world.refusing.remove(&0),
        };
    }
    told
}

/// Runs a fault with several seeds and policies: server 0 is named for the first time within five seconds, as expected, it returns
/// within ten seconds of the end, and no other server is named.
fn names(fault: Option<Fault>, refuses: impl Fn(f64) -> Option<Failure>, expected: fn(Condition) -> bool) {
    for policy in [Policy::NONE, Policy::HEDGE] {
        for seed in 0..10 {
            let told = told(seed, policy, fault.clone(), &refuses);
            let seen = format!("seed {seed}, {policy:?}: {told:?}");
            assert!(told.iter().all(|(_, server, _)| *server == 0), "a healthy one is named: {seen}");
            let (first, _, condition) = *told.first().unwrap_or_else(|| panic!("nothing is named: {seen}"));
            let soon = (FROM as f64..FROM as f64 + 5.0).contains(&first);
            assert!(soon && expected(condition), "{seen}");
            let (last, _, condition) = told[told.len() - 1];
            let back = condition == Condition::Well && last < UNTIL as f64 + 10.0;
            assert!(back, "it has returned: {seen}");
            assert!(told.len() <= 4, "one line for each change and minute: {seen}");
        }
    }
}

fn once() -> When {
    When::Once { at: seconds(FROM), length: seconds(UNTIL - FROM) }
}

fn never(_: f64) -> Option<Failure> {
    None
}

fn during(now: f64, failure: Failure) -> Option<Failure> {
    (FROM as f64..UNTIL as f64).contains(&now).then_some(failure)
}

#[test]
fn frozen_server_is_silent() {
    let fault = Fault::Hang { when: once(), on: Targets::Only(vec![0]) };
    names(Some(fault), never, |condition| matches!(condition, Condition::Silent { .. }));
}

#[test]
fn server_that_is_six_times_slower_is_slow() {
    let fault = Fault::Slow { factor: 6.0, when: once(), on: Targets::Only(vec![0]) };
    names(Some(fault), never, |condition| matches!(condition, Condition::Slow(_) | Condition::Silent { .. }));
}

#[test]
fn server_that_answers_500_is_failing() {
    names(None, |now| during(now, Failure::Model), |condition| condition == Condition::Failing);
}

#[test]
fn server_that_takes_no_connection_is_unreachable() {
    names(None, |now| during(now, Failure::Unsent), |condition| condition == Condition::Unreachable);
}

#[test]
fn server_that_fails_and_recovers_is_flapping() {
    let flaps = |now: f64| during(now, Failure::Unsent).filter(|_| now % 8.0 < 4.0);
    for seed in 0..10 {
        let told = told(seed, Policy::HEDGE, None, flaps);
        assert!(told.iter().all(|(_, server, _)| *server == 0), "{told:?}");
        assert!(told.iter().any(|(_, _, condition)| *condition == Condition::Flapping(3)), "{told:?}");
    }
}

#[test]
fn nothing_is_named_while_nothing_is_wrong() {
    for seed in 0..20 {
        assert_eq!(told(seed, Policy::HEDGE, None, never), []);
    }
}
