//! Random schedules of events, worlds to run them in, and the driver's answers.

use std::time::Duration;

use parm_dispatch::{
    Accept, Cost, Elsewhere, Event, Failure, InstanceId, InstanceSpec, Judgement, NodeId, PolicyKind, PoolId,
    PoolSettings, QueryId, QuerySpec, Served, Settings, ShapeId, ShareId, Site, Terms, Time, Verdict, ZoneId,
};
use proptest::prelude::*;

use super::drawn_settings::settings;
use super::token_events::{Tokens, token_event, tokens};
use super::world::{Held, World};

/// A random event; numbers choose among what exists at that time.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Arrival {
        pool: u32,
        shape: u32,
        within_ms: u64,
        priority: u8,
        share: Option<u32>,
        accept: Accept,
        codable: bool,
        size: u32,
    },
    /// A burst of this many queries like this one.
    Burst(usize, Box<Happening>),
    Cancel(usize),
    Completion(usize),
    Failing {
        job: usize,
        how: Failure,
    },
    Join(Joining),
    /// A known instance reports other slots and models.
    Rejoin(usize, Joining),
    Leave(usize),
    /// All instances leave.
    Desert,
    Drain(usize),
    ProbeAnswer {
        probe: usize,
        works: bool,
    },
    Encoding {
        group: usize,
        works: bool,
    },
    Decoding {
        slot: usize,
        outcome: Option<Option<f32>>,
    },
    Comparing {
        group: usize,
        agrees: bool,
    },
    Judging {
        answer: usize,
        judgement: Judgement,
    },
    Checking {
        pair: usize,
        agrees: Option<bool>,
    },
    Costing(Cost),
    Beside {
        instance: usize,
        jobs: u16,
        home: bool,
    },
    /// An instance offers, grants, shares, recalls or no longer gives tokens.
    Tokens(usize, Tokens),
    /// The lease in 100 us.
    Time(u64),
    Change(Box<PoolSettings>),
    /// Settings of which only a part is in force.
    Force(Box<PoolSettings>, PolicyKind, u16, u32),
    /// A pool serves a new version of another one's model.
    Version(u32, u32),
    /// Time passes without a wake, in 100 us.
    Pause(u64),
    /// The model is unloaded; later queries for it find no instance until one joins with it again.
    Remove(u32),
}

/// The report of an instance that joins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joining {
    slots: u16,
    pools: u32,
    node: u32,
    /// Its slots are learned, up to those reported.
    learns: bool,
    /// It has nothing but the stand-ins.
    apart: bool,
    flags: u8,
    at_once: u16,
}

pub(crate) const POOLS: u32 = 3;
pub(crate) const SHARES: u32 = 2;

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        2 => Just(Failure::Instance), 1 => Just(Failure::Unsent), 2 => Just(Failure::Model), 1 => Just(Failure::Query),
        1 => Just(Failure::Withheld),
    ]
}

/// Rows that cost as much together as alone, or little more than one.
fn cost() -> impl Strategy<Value = Cost> {
    (0.05..1.5f64, 0.0..1.0f64).prop_map(|(row, more)| Cost {
        rows: [1.0, 2.0, 4.0, 8.0].map(|rows| row * (1.0 + more * (rows - 1.0))),
    })
}

fn kind() -> impl Strategy<Value = PolicyKind> {
    use PolicyKind::{ApproximateBackup, Equal, Hedge, None, Once, Parm, ParmPlus, Replicate, StandIn};
    prop::sample::select(vec![
        ApproximateBackup,
        Equal,
        Hedge,
        None,
        Once,
        Parm,
        ParmPlus,
        Replicate,
        StandIn,
    ])
}

fn judgement() -> impl Strategy<Value = Judgement> {
    prop_oneof![
        4 => prop::option::of(0f32..1.0).prop_map(Judgement::Fit),
        1 => Just(Judgement::Unfit),
    ]
}

fn accept() -> impl Strategy<Value = Accept> {
    prop_oneof![7 => Just(Accept::Any), 2 => Just(Accept::Exact), 2 => prop::sample::select(vec![100, 500, 900]).prop_map(Accept::AtMost)]
}

fn arrival() -> impl Strategy<Value = Happening> {
    let size = prop_oneof![3 => Just(1), 1 => 1..5000u32];
    let plain = (prop::option::of(0..SHARES), prop::bool::weighted(0.9), size);
    (0..POOLS, 0..2u32, 0..300u64, 0..3u8, accept(), plain).prop_map(
        |(pool, shape, within_ms, priority, accept, (share, codable, size))| Happening::Arrival {
            pool,
            shape,
            within_ms,
            priority,
            share,
            accept,
            codable,
            size,
        },
    )
}

fn joining() -> impl Strategy<Value = Joining> {
    let fixed = (1..5u16, Just(false));
    let learned = (1..12u16, Just(true));
    let slots = prop_oneof![2 => fixed.boxed(), 1 => learned.boxed()];
    let apart = prop::bool::weighted(0.3);
    let flags = prop_oneof![2 => Just(15u8), 1 => 1..16u8];
    let at_once = prop_oneof![2 => Just(0u16), 1 => 1..4u16];
    (slots, 1..8u32, 0..3u32, apart, flags, at_once).prop_map(
        |((slots, learns), pools, node, apart, flags, at_once)| Joining {
            slots,
            pools,
            node,
            learns,
            apart,
            flags,
            at_once,
        },
    )
}

/// An instance with nothing but the stand-ins of all pools joins.
pub(crate) fn stand_ins_join() -> Happening {
    Happening::Join(Joining {
        slots: 1,
        pools: 7,
        node: 2,
        learns: false,
        apart: true,
        flags: 15,
        at_once: 0,
    })
}

/// A random event of a fleet that often hangs as a whole, next to stand-ins.
pub(crate) fn hanging() -> impl Strategy<Value = Happening> {
    let burst = (2..8usize, arrival()).prop_map(|(count, one)| Happening::Burst(count, Box::new(one)));
    prop_oneof![
        2 => happening(),
        4 => arrival(),
        2 => burst,
        3 => (20..600u64).prop_map(Happening::Time),
        1 => Just(stand_ins_join()),
        2 => any::<usize>().prop_map(Happening::Completion),
        1 => (any::<usize>(), failure()).prop_map(|(job, how)| Happening::Failing { job, how }),
        2 => (any::<usize>(), judgement()).prop_map(|(answer, judgement)| Happening::Judging { answer, judgement }),
    ]
}

pub(crate) fn happening() -> impl Strategy<Value = Happening> {
    let burst = (2..12usize, arrival()).prop_map(|(count, one)| Happening::Burst(count, Box::new(one)));
    prop_oneof![
        12 => arrival(),
        2 => burst,
        1 => any::<usize>().prop_map(Happening::Cancel),
        10 => any::<usize>().prop_map(Happening::Completion),
        2 => (any::<usize>(), failure()).prop_map(|(job, how)| Happening::Failing { job, how }),
        1 => joining().prop_map(Happening::Join),
        1 => (any::<usize>(), joining()).prop_map(|(which, joining)| Happening::Rejoin(which, joining)),
        1 => any::<usize>().prop_map(Happening::Leave),
        1 => Just(Happening::Desert),
        1 => any::<usize>().prop_map(Happening::Drain),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(probe, works)| Happening::ProbeAnswer { probe, works }),
        6 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(group, works)| Happening::Encoding { group, works }),
        6 => (any::<usize>(), prop::option::weighted(0.9, prop::option::of(0f32..1.0)))
            .prop_map(|(slot, outcome)| Happening::Decoding { slot, outcome }),
        6 => (any::<usize>(), prop::bool::weighted(0.7)).prop_map(|(group, agrees)| Happening::Comparing { group, agrees }),
        8 => (any::<usize>(), judgement()).prop_map(|(answer, judgement)| Happening::Judging { answer, judgement }),
        8 => (any::<usize>(), prop::option::weighted(0.9, prop::bool::weighted(0.7)))
            .prop_map(|(pair, agrees)| Happening::Checking { pair, agrees }),
        1 => cost().prop_map(Happening::Costing),
        2 => (any::<usize>(), 0..3u16, any::<bool>())
            .prop_map(|(instance, jobs, home)| Happening::Beside { instance, jobs, home }),
        13 => (any::<usize>(), tokens()).prop_map(|(instance, change)| Happening::Tokens(instance, change)),
        8 => prop_oneof![4 => 0..100u64, 1 => 0..3000u64].prop_map(Happening::Time),
        1 => settings().prop_map(|settings| Happening::Change(Box::new(settings))),
        1 => (0..POOLS).prop_map(Happening::Remove),
        1 => (settings(), kind(), 1..4u16, prop_oneof![Just(u32::MAX), 1..9000u32])
            .prop_map(|(settings, kind, rows, padded)| Happening::Force(Box::new(settings), kind, rows, padded)),
        1 => (1..POOLS, 0..POOLS).prop_map(|(pool, before)| Happening::Version(pool, before.min(pool - 1))),
        1 => prop_oneof![4 => 0..100u64, 1 => 0..3000u64].prop_map(Happening::Pause),
    ]
}

pub(crate) fn world(settings: PoolSettings, instances: u32) -> World {
    // One share with a weight only, one with a reserved instance.
    let terms = |share| Terms { weight: f64::from(1 + share), reserved: share };
    let shares = (0..SHARES).map(|share| (ShareId(share), terms(share))).collect();
    let settings = Settings { shares, ..Settings::uniform(settings) };
    let mut world = World::new(settings, 1).given_ahead();
    world.groups.compares = true;
    world.dispatcher.follow_queries(true);
    world.dispatcher.watch_groups(true);
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
            let mut in_force = parm_dispatch::InForce::as_wished(settings);
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
