//! Worlds in which random events happen, and the driver's answers.

use std::time::Duration;

use parm_dispatch::{
    Accept, Elsewhere, Event, InstanceId, InstanceSpec, Judgement, NodeId, PoolId, QueryId, QuerySpec,
    Served, Settings, ShapeId, ShareId, Site, Terms, Time, Verdict, ZoneId,
};
use parm_settings::{Cost, PoolSettings};
use proptest::prelude::*;

use super::happening::{Happening, Joining, POOLS, SHARES};
use super::token_events::token_event;
use super::world::{Held, World};

pub(crate) fn world(settings: PoolSettings, instances: u32) -> World {
    // One share with a weight only, one with a reserved instance.
    let terms = |share| Terms { weight: f64::from(1 + share), reserved: share };
    let shares = (0..SHARES).map(|share| (ShareId(share), terms(share))).collect();
    let settings = Settings { shares, ..Settings::uniform(settings) };
    let mut world = World::new(settings, 1).given_ahead();
    world.groups.compares = true;
    world.dispatcher.follow_queries(true);
    for id in 0..instances {
        let learns = id % 4 == 1;
        let slots = if learns { 8 } else { 1 };
        join(
            &mut world,
            id,
            Joining { slots, pools: 7, node: id % 3, learns, apart: false, flags: 15, at_once: 0 },
        );
    }
    world
}

fn join(world: &mut World, id: u32, joining: Joining) {
    let Joining { slots, pools, node, learns, apart, flags, at_once } = joining;
    let served = |pool| match apart {
        true => Served::stand_in(pool),
        false => Served {
            pool,
            deployed: flags & 1 != 0,
            parity: flags & 2 != 0,
            backup: flags & 4 != 0,
            stand_in: flags & 8 != 0,
            at_once: std::num::NonZeroU16::new(at_once),
        },
    };
    let serves = (0..POOLS).filter(|pool| pools & 1 << pool != 0).map(|pool| served(PoolId(pool))).collect();
    // Two nodes in one zone, and one node whose zone is unknown.
    let zone = (node < 2).then_some(ZoneId(0));
    let spec = InstanceSpec {
        serves,
        slots,
        site: Site { node: Some(NodeId(node)), zone, ..Site::default() },
        learns,
    };
    world.send(Event::InstanceJoined(InstanceId(id), spec));
}

pub(crate) fn happen(world: &mut World, names: &mut u32, happening: &Happening) {
    *names += 1;
    let choose = |count: usize, which: usize| (count > 0).then(|| which % count);
    match *happening {
        Happening::Arrival { pool, shape, within_ms, priority, share, accept, codable, size } => {
            let (id, deadline) = (QueryId(u64::from(*names)), world.now + Duration::from_millis(within_ms));
            // Queries of the second shape may be padded if they have a size.
            let padded = shape == 1 && size > 1;
            let (pool, shape) = (PoolId(pool), ShapeId(shape + u32::from(padded)));
            world.send(Event::QueryArrived(QuerySpec {
                id,
                pool,
                shape,
                deadline,
                priority,
                share: share.map(ShareId),
                accept,
                codable,
                size,
                padded,
            }));
        }
        Happening::Burst(count, ref one) => (0..count).for_each(|_| happen(world, names, one)),
        Happening::Desert => {
            for id in world.instances.keys().copied().collect::<Vec<_>>() {
                world.send(Event::InstanceLeft(id));
            }
        }
        Happening::Cancel(which) => {
            if let Some(at) = choose(world.queries.len(), which) {
                let id = *world.queries.keys().nth(at).expect("counted");
                world.send(Event::QueryCancelled(id));
            }
        }
        Happening::Completion(which) => {
            if let Some(at) = choose(world.running().count(), which) {
                let id = *world.running().nth(at).expect("counted").0;
                world.send(Event::JobCompleted(id));
            }
        }
        Happening::Failing { job, how } => {
            if let Some(at) = choose(world.running().count(), job) {
                let id = *world.running().nth(at).expect("counted").0;
                world.send(Event::JobFailed(id, how));
            }
        }
        Happening::Join(joining) => join(world, *names, joining),
        Happening::Rejoin(which, joining) => {
            if let Some(id) =
                choose(world.instances.len(), which).and_then(|at| world.instances.keys().nth(at))
            {
                join(world, id.0, joining);
            }
        }
        Happening::Leave(which) => {
            if let Some(id) =
                choose(world.instances.len(), which).and_then(|at| world.instances.keys().nth(at))
            {
                world.send(Event::InstanceLeft(*id));
            }
        }
        Happening::Drain(which) => {
            if let Some(id) =
                choose(world.instances.len(), which).and_then(|at| world.instances.keys().nth(at))
            {
                world.send(Event::InstanceDraining(*id));
            }
        }
        Happening::Beside { instance, jobs, home } => {
            if let Some(id) =
                choose(world.instances.len(), instance).and_then(|at| world.instances.keys().nth(at))
            {
                world.send(Event::HeldElsewhere(*id, Elsewhere { jobs, home }));
            }
        }
        Happening::Tokens(which, ref change) => {
            let Some(at) = choose(world.instances.len(), which) else { return };
            let id = *world.instances.keys().nth(at).expect("counted");
            let event = token_event(world, id, *names, change);
            world.send(event);
        }
        Happening::ProbeAnswer { probe, works } => {
            if let Some(probe) = choose(world.probes.len(), probe).and_then(|at| world.probes.iter().nth(at))
            {
                let (id, pool) = *probe;
                world.send(Event::ProbeAnswered(id, pool, works));
            }
        }
        Happening::Encoding { group, works } => {
            let encodings = &world.groups.encodings;
            if let Some(id) = choose(encodings.len(), group).and_then(|at| encodings.iter().nth(at)) {
                world.send(if works { Event::GroupEncoded(*id) } else { Event::GroupFailed(*id) });
            }
        }
        Happening::Decoding { slot, outcome } => {
            let decodings = &world.groups.decodings;
            if let Some((group, query)) =
                choose(decodings.len(), slot).and_then(|at| decodings.keys().nth(at))
            {
                world.send(match outcome {
                    Some(confidence) => Event::SlotDecoded { group: *group, query: *query, confidence },
                    None => Event::SlotFailed { group: *group, query: *query },
                });
            }
        }
        Happening::Comparing { group, agrees } => {
            let comparisons = &world.groups.comparisons;
            if let Some(id) = choose(comparisons.len(), group).and_then(|at| comparisons.keys().nth(at)) {
                let verdict = |slot| Verdict { slot, row: 0, agrees: agrees || slot == 0 };
                world.send(Event::Compared(*id, (0..4).map(verdict).collect()));
            }
        }
        Happening::Judging { answer, judgement } => {
            let judging = &world.twins.judging;
            if let Some((id, output)) = choose(judging.len(), answer).and_then(|at| judging.iter().nth(at)) {
                world.send(Event::Judged(*id, *output, judgement));
            }
        }
        Happening::Checking { pair, agrees } => {
            let checking = &world.twins.checking;
            if let Some(pair) = choose(checking.len(), pair).and_then(|at| checking.iter().nth(at)) {
                world.send(Event::Checked(*pair, agrees));
            }
        }
        Happening::Costing(cost) => world.send(Event::StandInCost(PoolId(*names % POOLS), cost)),
        Happening::Time(steps) => world.advance(Duration::from_micros(100 * steps)),
        Happening::Change(ref settings) => {
            world.send(Event::settings(PoolId(*names % POOLS), *settings.clone()));
        }
        Happening::Force(ref settings, kind, rows, padded) => {
            let mut in_force = parm_settings::InForce::as_wished(settings);
            in_force.policy = kind;
            in_force.max_rows = std::num::NonZeroU16::new(rows).expect("positive");
            in_force.max_padded = padded;
            let (settings, in_force) = (settings.clone(), Box::new(in_force));
            world.send(Event::SettingsChanged { pool: PoolId(*names % POOLS), settings, in_force });
        }
        Happening::Version(pool, before) => {
            world.send(Event::VersionAdded { pool: PoolId(pool), predecessor: PoolId(before) });
        }
        Happening::Pause(steps) => {
            world.now = world.now + Duration::from_micros(100 * steps);
            world.paused = true;
            world.wake = world.wake.filter(|at| *at > world.now);
            world.send(Event::TimerFired);
        }
        Happening::Remove(pool) => world.send(Event::PoolRemoved(PoolId(pool))),
    }
}

pub(crate) fn run(settings: &PoolSettings, instances: u32, schedule: &[Happening]) -> World {
    let mut world = world(settings.clone(), instances);
    let mut names = 1000;
    for happening in schedule {
        happen(&mut world, &mut names, happening);
    }
    world
}

/// A query from which a pool learns its service times.
fn warming(now: Time, pool: PoolId, number: u64) -> Event {
    Event::QueryArrived(QuerySpec {
        id: QueryId(1_000_000 + number),
        pool,
        shape: ShapeId(0),
        deadline: now + Duration::from_millis(1000),
        priority: 0,
        share: None,
        accept: Accept::Any,
        codable: true,
        size: 1,
        padded: false,
    })
}

/// As `run`, in pools whose service times are known.
pub(crate) fn run_warm(settings: &PoolSettings, instances: u32, schedule: &[Happening]) -> World {
    run_after(40, settings, instances, schedule)
}

/// As `run_warm`, in pools that also know how rare long runs are: instances may be silent together.
pub(crate) fn run_hot(settings: &PoolSettings, instances: u32, schedule: &[Happening]) -> World {
    run_after(80, settings, instances, schedule)
}

fn run_after(runs: u64, settings: &PoolSettings, instances: u32, schedule: &[Happening]) -> World {
    let mut world = world(settings.clone(), instances.max(1));
    for pool in (0..POOLS).map(PoolId) {
        world.send(Event::StandInCost(pool, Cost { rows: [0.25, 0.27, 0.3, 0.4] }));
        for id in 0..runs {
            world.send(warming(world.now, pool, 1000 * u64::from(pool.0) + id));
            world.advance(Duration::from_millis(4));
            complete_all(&mut world);
            answer_driver(&mut world, Judgement::Unfit);
            complete_all(&mut world);
        }
    }
    let mut names = 1000;
    schedule.iter().for_each(|happening| happen(&mut world, &mut names, happening));
    world
}

/// As `run_warm`, on instances of which each takes its own multiple of 4 ms.
pub(crate) fn run_uneven(settings: &PoolSettings, factors: &[u64], schedule: &[Happening]) -> World {
    let mut world = world(settings.clone(), factors.len() as u32);
    for pool in (0..POOLS).map(PoolId) {
        world.send(Event::StandInCost(pool, Cost { rows: [0.25, 0.27, 0.3, 0.4] }));
        for round in 0..40 {
            for id in 0..factors.len() as u64 {
                world.send(warming(world.now, pool, 100_000 * u64::from(pool.0) + 100 * round + id));
            }
            for passed in 1..=4 {
                world.advance(Duration::from_millis(4));
                let ends = |held: &Held| factors[held.job.instance.0 as usize] <= passed;
                let ended: Vec<_> =
                    world.running().filter(|(_, held)| ends(held)).map(|(id, _)| *id).collect();
                ended.into_iter().for_each(|id| world.send(Event::JobCompleted(id)));
            }
            complete_all(&mut world);
            answer_driver(&mut world, Judgement::Unfit);
            complete_all(&mut world);
        }
    }
    let mut names = 1000;
    schedule.iter().for_each(|happening| happen(&mut world, &mut names, happening));
    world
}

/// Completes every job, and those that start meanwhile.
pub(crate) fn complete_all(world: &mut World) {
    loop {
        let Some(job) = world.running().next().map(|(id, _)| *id) else { return };
        world.send(Event::JobCompleted(job));
    }
}

/// Sends every report that the dispatcher requested.
pub(crate) fn answer_driver(world: &mut World, judgement: Judgement) {
    let encodings: Vec<_> = world.groups.encodings.iter().copied().collect();
    encodings.into_iter().for_each(|id| world.send(Event::GroupEncoded(id)));
    let decodings: Vec<_> = world.groups.decodings.keys().copied().collect();
    decodings.into_iter().for_each(|(group, query)| world.send(Event::SlotFailed { group, query }));
    let comparisons: Vec<_> = world.groups.comparisons.keys().copied().collect();
    comparisons.into_iter().for_each(|group| world.send(Event::Compared(group, Vec::new())));
    let judging: Vec<_> = world.twins.judging.iter().copied().collect();
    judging.into_iter().for_each(|(id, output)| world.send(Event::Judged(id, output, judgement)));
    let checking: Vec<_> = world.twins.checking.iter().copied().collect();
    checking.into_iter().for_each(|pair| world.send(Event::Checked(pair, Some(true))));
}

/// How many schedules a property draws: `PROPTEST_CASES` replaces its own number.
#[allow(clippy::disallowed_methods)] // a test has no configuration but its environment
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|number| number.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(usual), ..ProptestConfig::default() }
}
