//! Work that is given ahead of time to an instance that already hangs.
//!
//! The model takes 200 us, so an instance holds up to 2 ms of work. Queries that wait behind a hung job must be answered by
//! other instances soon after the silence is noticed.

use std::time::Duration;

use parm_dispatch::{
    Accept, Action, Elsewhere, Event, InstanceId, InstanceSpec, Judgement, QueryId, QuerySpec, Served,
    Settings, ShapeId, Site, Time,
};
use parm_settings::{PolicyKind, PoolSettings};

use super::script::one_by_one;
use super::world::{POOL, World};

/// The instance that hangs.
const HUNG: u32 = 1;

/// The service time of the others.
const RUN: Duration = Duration::from_micros(200);

/// A hung job is late after 1 ms, an instance holds up to 2 ms of work, and the others run a burst in less than 3 ms.
const SOON: Duration = Duration::from_millis(20);

/// Time between a query's arrival and its deadline.
const LIMIT: Duration = Duration::from_secs(5);

#[test]
fn work_behind_a_hung_job_is_answered_soon_by_others() {
    check_bursts(PolicyKind::Hedge, 12, false);
}

#[test]
fn work_behind_a_hung_job_is_answered_soon_under_stand_in() {
    // The bursts are so large that late stand-ins are put behind the hung job.
    check_bursts(PolicyKind::StandIn, 40, false);
}

#[test]
fn work_behind_a_hung_job_is_answered_soon_with_neighbours() {
    check_bursts(PolicyKind::Hedge, 12, true);
}

/// A burst of queries comes every 3 ms for half a second. The instances that do not hang can serve 45 in this time.
#[track_caller]
fn check_bursts(policy: PolicyKind, burst: u64, neighbours: bool) {
    let mut world = warm(policy, neighbours);
    let mut next = 1000;
    // One query for each instance: the one at the hung instance is late 1 ms later.
    arrive(&mut world, 4, &mut next);
    (0..10).for_each(|_| run(&mut world));
    for _ in 0..170 {
        arrive(&mut world, burst, &mut next);
        (0..15).for_each(|_| run(&mut world));
    }
    (0..100).for_each(|_| run(&mut world));
    let slow: Vec<_> = waits(&world).into_iter().filter(|(_, wait)| *wait > SOON).collect();
    assert!(slow.is_empty(), "these of {} waited for longer than {SOON:?}: {slow:?}", next - 1000);
    world.finish();
}

/// Four instances of known service time; instance 1 hangs from now on.
fn warm(policy: PolicyKind, neighbours: bool) -> World {
    let mut settings = PoolSettings { policy, ..one_by_one() };
    settings.ejection.slow_start = Duration::ZERO;
    let mut world = World::new(Settings::uniform(settings), 7).given_ahead();
    for id in 1..=4 {
        let spec =
            InstanceSpec { serves: vec![Served::all(POOL)], slots: 1, site: Site::default(), learns: false };
        world.send(Event::InstanceJoined(InstanceId(id), spec));
    }
    let mut next = 0;
    for _ in 0..200 {
        arrive(&mut world, 1, &mut next);
        world.advance(RUN);
        let running: Vec<_> = world.running().map(|(id, _)| *id).collect();
        running.into_iter().for_each(|job| world.send(Event::JobCompleted(job)));
        answer_driver(&mut world);
    }
    if neighbours {
        // The fourth instance is home to another frontend, which holds nothing there.
        world.send(Event::HeldElsewhere(InstanceId(4), Elsewhere { jobs: 0, home: false }));
    }
    world
}

fn arrive(world: &mut World, count: u64, next: &mut u64) {
    for _ in 0..count {
        world.send(Event::QueryArrived(QuerySpec {
            id: QueryId(*next),
            pool: POOL,
            shape: ShapeId(0),
            deadline: world.now + LIMIT,
            priority: 0,
            share: None,
            accept: Accept::Any,
            codable: true,
            size: 1,
            padded: false,
        }));
        *next += 1;
    }
}

/// A service time passes: each instance that does not hang ends its first job.
fn run(world: &mut World) {
    world.advance(RUN);
    for instance in (1..=4).filter(|instance| *instance != HUNG).map(InstanceId) {
        let first = world.running().find(|(_, held)| held.job.instance == instance).map(|(id, _)| *id);
        first.into_iter().for_each(|job| world.send(Event::JobCompleted(job)));
    }
    answer_driver(world);
    let probes: Vec<_> = world.probes.iter().copied().filter(|(id, _)| *id != InstanceId(HUNG)).collect();
    probes.into_iter().for_each(|(id, pool)| world.send(Event::ProbeAnswered(id, pool, true)));
}

/// The driver finds every stand-in's answer confident, and equal to the prediction.
fn answer_driver(world: &mut World) {
    let judging: Vec<_> = world.twins.judging.iter().copied().collect();
    judging
        .into_iter()
        .for_each(|(id, output)| world.send(Event::Judged(id, output, Judgement::Fit(Some(0.99)))));
    let checking: Vec<_> = world.twins.checking.iter().copied().collect();
    checking.into_iter().for_each(|pair| world.send(Event::Checked(pair, Some(true))));
}

/// How long each query waited for its answer, or has waited so far.
fn waits(world: &World) -> Vec<(QueryId, Duration)> {
    let arrived = |id: &QueryId| Time::ZERO + (world.queries[id].query.deadline.since(Time::ZERO) - LIMIT);
    let answers = world.log.iter().filter_map(|(at, action)| match action {
        Action::Answer(id, _) => Some((*id, *at)),
        _ => None,
    });
    let answers: std::collections::BTreeMap<_, _> = answers.collect();
    let ended = |id: &QueryId| answers.get(id).copied().unwrap_or(world.now);
    world.queries.keys().map(|id| (*id, ended(id).since(arrived(id)))).collect()
}
