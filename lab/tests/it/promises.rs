//! What the dispatcher promises, under random settings, faults and disturbances. `Dispatcher::check` looks into its books after
//! each event, and an auditor that sees only what passes between the dispatcher, its servers and its clients keeps other ones.
//! `lab/tests/mistakes.py` shows which mistakes they find.

use std::time::Duration;

use parm_dispatcher::{
    Accept, BudgetSettings, CodingSettings, End, Failure, HealthSettings, ModelSettings, Policy, Shape,
    ShareKey, StandInPolicy, Submission, Time, parity_instances,
};
use parm_encoder::{Needs, Recovery};
use parm_lab::world::{Coded, Plan, World};
use parm_workload::service::Service;
use parm_workload::{Fault, Faults, Pattern, Random, Scenario, Targets, When};

use crate::auditor::Auditor;

const POLICIES: [Policy; 9] = [
    Policy::NONE,
    Policy::ONCE,
    Policy::EQUAL,
    Policy::HEDGE,
    Policy::REPLICATE,
    Policy::STAND_IN,
    Policy::PARM,
    Policy::PARM_PLUS,
    Policy::APPROXIMATE_BACKUP,
];
const PROFILES: [&str; 8] = ["clean", "sick", "A", "B", "hang", "crash", "hosts+A", "heal+hang"];

/// A random plan, and how often something is disturbed.
fn plan(seed: u64) -> (Plan, f64) {
    let mut draw = Random::of(seed, [1]);
    let policy = POLICIES[draw.below(POLICIES.len())];
    let profile = PROFILES[draw.below(PROFILES.len())];
    let scenario = Scenario::named(profile).expect("it is built in");
    let instances = 2 + draw.below(8) as u32;
    let load = 0.2 + 0.9 * draw.uniform();
    let settings = settings(&mut draw, policy);
    let second = (draw.uniform() < 0.3).then(|| self::settings(&mut draw, Policy::HEDGE));
    let is_coded = [Policy::PARM, Policy::PARM_PLUS].contains(&policy);
    let parities = 1 + draw.below(2);
    let smallest = 2 + draw.below(2);
    let code = |k| Recovery { k, parities, needs: Needs::AsManyAsMissing };
    let coding = is_coded.then(|| CodingSettings {
        codes: (smallest..=4).map(code).collect(),
        follows_load: policy == Policy::PARM_PLUS,
        max_age: Duration::from_millis(20),
    });
    let has_apart = [Policy::PARM, Policy::APPROXIMATE_BACKUP].contains(&policy);
    let is_short = draw.uniform() < 0.15;
    let plan = Plan {
        seed,
        queries: 1500,
        warm_up: 0,
        arrivals: scenario.at(Pattern::Poisson, load * f64::from(instances) / 0.02),
        faults: scenario.faults,
        service: Service { row_share: [0.05, 0.3, 1.0][draw.below(3)], ..Service::default() },
        instances,
        slots: 1 + draw.below(4) as u16,
        settings,
        second,
        coding,
        apart: if has_apart { parity_instances(instances as usize, smallest) as u32 } else { 0 },
        stand_in_cost: (policy.stand_in.is_some() || draw.uniform() < 0.2).then_some(0.25),
        deadline: Duration::from_millis(
            if is_short { 5 + draw.below(45) } else { 100 + draw.below(2000) } as u64
        ),
    };
    (plan, if draw.uniform() < 0.5 { 0.0 } else { 0.05 })
}

fn settings(draw: &mut Random, policy: Policy) -> ModelSettings {
    let budget = |draw: &mut Random, burst: u32| BudgetSettings {
        ratio: [0.0, 0.05, 0.1, 0.25][draw.below(4)],
        burst: draw.below(burst as usize + 1) as u32,
    };
    let stand_in = policy.stand_in.map(|of| StandInPolicy {
        bound: if of.at_once { of.bound } else { [0.0, 0.02, 0.05, 0.3][draw.below(4)] },
        ..of
    });
    ModelSettings {
        policy: Policy { stand_in, ..policy },
        max_attempts: 1 + draw.below(4) as u8,
        queue_limit: [5, 50, 10_000][draw.below(3)],
        max_rows: [1, 1, 4, 16][draw.below(4)],
        hedges: budget(draw, 10),
        retries: budget(draw, 100),
        health: HealthSettings { least_in_service: [0.0, 0.3][draw.below(2)], ..HealthSettings::default() },
        ..ModelSettings::default()
    }
}

/// What a client asks.
fn ask(draw: &mut Random, world: &World, plan: &Plan) -> Submission<u64> {
    let size = [1, 1, 1, 10, 11, 20][draw.below(6)];
    Submission {
        model: world.second.filter(|_| draw.uniform() < 0.4).unwrap_or(world.model),
        accept: [Accept::Any, Accept::Any, Accept::Exact, Accept::AtMost(20), Accept::AtMost(200)]
            [draw.below(5)],
        shape: Shape { name: u32::from(draw.uniform() < 0.1), size },
        share: (plan.seed.is_multiple_of(3) && draw.uniform() < 0.5).then(|| ShareKey(draw.below(2) as u32)),
        priority: draw.below(3) as u8,
        background: draw.uniform() < 0.1,
        ..world.next.clone()
    }
}

/// Runs a plan with disturbances, and says what broke.
fn breach(seed: u64) -> Result<u64, String> {
    let (plan, disturbed) = plan(seed);
    let mut draw = Random::of(seed, [2]);
    let mut world = World::new(&plan).map_err(|error| error.to_string())?;
    world.cancels = draw.uniform() < 0.5;
    world.lanes = 1 + Random::of(seed, [3]).below(4);
    world.learns = Random::of(seed, [4]).uniform() < 0.3;
    let mut distrusts = Random::of(seed, [5]);
    let is_mixed = draw.uniform() < 0.5;
    let mut auditor = Auditor::new(&plan, &world);
    let mut replied = 0;
    while world.advance() {
        if draw.uniform() < disturbed {
            disturb(&mut world, &mut draw, &plan);
        }
        if disturbed > 0.0 && distrusts.uniform() < 0.0005 {
            world.distrust(distrusts.below(plan.instances as usize));
        }
        if is_mixed {
            world.next = ask(&mut draw, &world, &plan);
        }
        let at = |what| format!("at {:?}: {what}", world.now);
        world.dispatcher.check(world.now).map_err(at)?;
        auditor.audit(&mut world).map_err(|what| format!("at {:?}: {what}", world.now))?;
        for reply in world.replies.drain(..) {
            replied += 1;
            if reply.result.is_ok_and(|answer| answer.output != reply.query.payload) {
                return Err(format!("query {} has the answer of another", reply.query.payload));
            }
        }
    }
    (0..plan.instances as usize).for_each(|server| world.leave(server));
    let left = (world.dispatcher.open_queries(), world.dispatcher.open_jobs());
    if left != (0, 0) {
        return Err(format!("{left:?} queries and jobs are left"));
    }
    if world.replaced.iter().any(|model| world.dispatcher.counters(*model).is_some()) {
        return Err("a removed model is left".into());
    }
    let held = world.coded.as_ref().map_or((0, 0), |coded| coded.coder.held());
    if held != (0, 0) {
        return Err(format!("{held:?} groups and members are left"));
    }
    if let Some(coded) = &world.coded {
        let first = |model| world.dispatcher.counters(model).unwrap_or_default().first;
        let (counters, started) = (coded.coder.counters(), coded.models().map(first).sum::<u64>());
        if counters.parities != started {
            return Err(format!("{started} parities started: {counters:?}"));
        }
    }
    Ok(replied)
}

/// Seeds that once broke a promise.
const BROKE: [u64; 1] = [70633];

const FAILURES: [Failure; 8] = [
    Failure::Instance,
    Failure::Instance,
    Failure::Instance,
    Failure::Unsent,
    Failure::Model,
    Failure::Model,
    Failure::Query,
    Failure::Withheld,
];

fn disturb(world: &mut World, draw: &mut Random, plan: &Plan) {
    let server = draw.below(plan.instances as usize);
    let models = world.models(server);
    match draw.below(16) {
        0 => world.leave(server),
        1 | 2 => world.join(server, plan.slots),
        3 => {
            let failure = FAILURES[draw.below(FAILURES.len())];
            world.stop(server, |_| End::Failed(failure));
        }
        4 => {
            let open: Vec<_> = world.open.keys().copied().collect();
            if let Some(query) = open.get(draw.below(open.len().max(1))) {
                world.cancel(*query);
            }
        }
        5 | 6 => {
            let deadline = world.now + Duration::from_millis(draw.below(300) as u64);
            world.submit(Submission { deadline, ..ask(draw, world, plan) });
        }
        7 => world.hold(server, true),
        8 | 9 => (0..plan.instances as usize).for_each(|server| world.hold(server, false)),
        10 if draw.uniform() < 0.5 => {
            let kept = models.into_iter().filter(|_| draw.uniform() < 0.7).collect();
            world.serve(server, kept, 1 + draw.below(4) as u16);
        }
        10 => world.serve(server, models, plan.slots),
        11 => {
            // A coded query stays one: the coder asks once from when on it may be answered.
            let policy = if plan.coding.is_some() || plan.apart > 0 {
                plan.settings.policy
            } else {
                POLICIES[draw.below(6)]
            };
            let settings = ModelSettings {
                policy,
                max_attempts: 1 + draw.below(4) as u8,
                queue_limit: [5, 50, 10_000][draw.below(3)],
                ..plan.settings
            };
            if draw.uniform() < 0.2 { world.replace(settings) } else { world.configure(settings) }
        }
        12 => {
            let open: Vec<_> = world.open.keys().copied().collect();
            if let Some(query) = open.get(draw.below(open.len().max(1))) {
                world.offer(*query);
            }
        }
        13 if world.refusing.is_empty() => {
            let failure = if draw.uniform() < 0.5 { Failure::Instance } else { Failure::Model };
            world.refusing.insert(server, failure);
        }
        13 => world.refusing.clear(),
        _ => world.stop(server, |rows| {
            if draw.uniform() < 0.2 {
                return End::Cancelled;
            }
            End::Answered(rows.iter().map(|row| (draw.uniform() < 0.5).then_some(*row)).collect())
        }),
    }
}

#[allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the range of seeds and its size are for a person"
)]
#[test]
fn random_schedules_keep_every_promise() {
    let range = std::env::var("PROMISE_SEEDS").unwrap_or_else(|_| "0..60".into());
    let (from, to) = range.split_once("..").expect("a range such as 0..60");
    let (from, to): (u64, u64) = (from.parse().expect("a number"), to.parse().expect("a number"));
    let mut replied = 0;
    let mut breaches = Vec::new();
    for seed in (from..to).chain(BROKE) {
        match breach(seed) {
            Ok(replies) => replied += replies,
            Err(what) => breaches.push(format!("seed {seed}: {what}")),
        }
    }
    println!("{replied} replies");
    assert!(
        breaches.is_empty(),
        "{} seeds:\n{}",
        breaches.len(),
        breaches[..breaches.len().min(12)].join("\n")
    );
}

/// While no run has ended, nothing says what is late. A frozen server must not hold the first queries of a day.
#[test]
fn server_that_is_frozen_at_the_start_delays_no_query_by_a_second() {
    let scenario = Scenario::named("clean").expect("it is built in");
    let when = When::Once { at: Duration::ZERO, length: Duration::from_secs(3000) };
    let hang = Fault::Hang { when, on: Targets::Count(1) };
    let plan = Plan {
        faults: Faults(vec![hang]),
        instances: 3,
        deadline: Duration::from_secs(20),
        ..Plan::new(5, 8, &scenario, 1.0)
    };
    let mut world = World::new(&plan).expect("the plan is valid");
    while world.advance() {}
    assert_eq!(world.replies.len(), 8);
    for reply in world.replies {
        let took = reply.at.since(reply.arrived);
        assert!(reply.result.is_ok() && took < Duration::from_millis(1020), "{took:?}");
    }
}

/// One of two servers is five times slower for the first twenty seconds. Parities need two idle servers, and they are the only runs
/// that show how fast a server is at them.
#[test]
fn server_that_was_slow_gets_parities_again_once_it_is_well() {
    let scenario = Scenario::named("clean").expect("it is built in");
    let when = When::Once { at: Duration::ZERO, length: Duration::from_secs(20) };
    let slow = Fault::Slow { factor: 5.0, when, on: Targets::Count(1) };
    let plan = Plan {
        faults: Faults(vec![slow]),
        instances: 2,
        settings: ModelSettings { policy: Policy::PARM_PLUS, ..ModelSettings::default() },
        coding: Some(CodingSettings {
            codes: vec![Recovery { k: 2, parities: 1, needs: Needs::AsManyAsMissing }],
            follows_load: false,
            max_age: Duration::from_millis(50),
        }),
        deadline: Duration::from_secs(20),
        ..Plan::new(5, 1600, &scenario, 40.0)
    };
    let mut world = World::new(&plan).expect("the plan is valid");
    let parity = world.coded.iter().flat_map(Coded::models).next().expect("there is one");
    let mut before = None;
    while world.advance() {
        if world.now > Time::from_nanos(24_000_000_000) && before.is_none() {
            before = world.dispatcher.counters(parity);
        }
    }
    let (before, after) = (before.expect("it took longer").first, world.dispatcher.counters(parity));
    assert!(after.expect("it exists").first > before + 10, "{before} parities, then {after:?}");
}
