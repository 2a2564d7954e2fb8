//! Instances that run more jobs at a time than the frontend may send them without a token.

use std::num::NonZeroU16;
use std::time::Duration;

use parm_dispatch::{
    Action, Event, Grant, InstanceId, InstanceSpec, Note, PoolId, QuerySpec, Role, Served, Settings, Site,
    Token,
};
use parm_settings::{Placement, PolicyKind, PoolSettings};

use super::script::Step::{Done, Join, Query, Quiet, Wait, Warm};
use super::script::{act, one_by_one, query, words};
use super::world::{POOL, World};

fn settings() -> PoolSettings {
    PoolSettings { policy: PolicyKind::Hedge, ..one_by_one() }
}

/// Instance 1 is known to take 20 ms, and instance 2 has just joined.
fn warm(settings: PoolSettings) -> World {
    let mut world = World::new(Settings::uniform(settings), 7).given_ahead();
    [Join(1), Warm(80), Join(2)].iter().for_each(|step| act(&mut world, step));
    world
}

/// The instance gives this frontend a token that no other one needs.
fn grant(world: &mut World, instance: u32, token: u32) {
    let (token, met) = (Token(token), Note(0));
    let grant = Grant { token, lease: None, contended: false, reserved: false, sharers: 2, met };
    world.send(Event::TokenGranted(InstanceId(instance), grant));
}

fn join_with(world: &mut World, id: u32, slots: u16) {
    let spec = InstanceSpec { serves: vec![Served::all(POOL)], slots, site: Site::default(), learns: false };
    world.send(Event::InstanceJoined(InstanceId(id), spec));
}

fn copies(world: &World) -> usize {
    let copies = |(_, action): &&_| matches!(action, Action::Run(job, _) if job.role == Role::Copy);
    world.log.iter().filter(copies).count()
}

#[test]
fn job_with_a_token_runs_next_to_others_of_its_worker() {
    let mut world = warm(settings());
    for id in [1, 2] {
        world.send(Event::TokensOffered(InstanceId(id)));
        act(&mut world, &Quiet);
    }
    // The worker has two instances, and both of its tokens are here.
    [1, 2].into_iter().for_each(|token| grant(&mut world, 1, token));
    [Query(1), Query(2)].iter().for_each(|step| act(&mut world, step));
    assert_eq!(world.running().filter(|(_, held)| held.job.instance == InstanceId(1)).count(), 2);
    grant(&mut world, 2, 3);
    act(&mut world, &Wait(19));
    assert_eq!(copies(&world), 0, "neither job is late: {:?}", words(&world));
}

#[test]
fn second_job_of_a_shared_worker_is_hedged_when_it_is_late() {
    let mut world = warm(PoolSettings { ahead: Duration::ZERO, ..settings() });
    for id in [1, 2] {
        world.send(Event::TokensOffered(InstanceId(id)));
    }
    act(&mut world, &Quiet);
    [1, 2].into_iter().for_each(|token| grant(&mut world, 1, token));
    [Query(1), Query(2), Wait(19), Done(1)].iter().for_each(|step| act(&mut world, step));
    grant(&mut world, 2, 3);
    act(&mut world, &Wait(12));
    // It has run for 31 ms, and runs usually take 20.
    let counters = world.dispatcher.status(POOL).expect("the pool").counters;
    assert_eq!((counters.hedges, counters.moved), (1, 0), "{:?}", words(&world));
}

#[test]
fn running_jobs_stay_when_their_instance_gets_fewer_slots() {
    let mut world = warm(settings());
    join_with(&mut world, 1, 4);
    act(&mut world, &Query(1));
    act(&mut world, &Query(2));
    for id in 3..=5 {
        act(&mut world, &Query(id));
    }
    let there =
        |world: &World| world.running().filter(|(_, held)| held.job.instance == InstanceId(1)).count();
    assert_eq!(there(&world), 4, "{:?}", words(&world));
    // Its settings or its file change.
    act(&mut world, &Wait(5));
    join_with(&mut world, 1, 1);
    act(&mut world, &Wait(13));
    act(&mut world, &Done(2));
    act(&mut world, &Quiet);
    act(&mut world, &Wait(40));
    let held = world.running().filter(|(_, held)| held.job.instance == InstanceId(1)).count();
    assert_eq!(held, 4);
    let first = copies(&world);
    let moved = world.dispatcher.status(POOL).expect("the pool").counters.moved;
    assert_eq!(moved, 0, "{first} copies: {:?}", words(&world));
}

#[test]
fn all_slots_of_a_worker_count_once_it_has_stated_them() {
    let mut world = warm(settings());
    let slots = |world: &mut World| world.dispatcher.reading(world.now, POOL).expect("the pool").slots;
    world.send(Event::TokensOffered(InstanceId(1)));
    assert_eq!(slots(&mut world), 2);
    world.send(Event::TokensShared(InstanceId(1), NonZeroU16::new(4)));
    assert_eq!(slots(&mut world), 5, "a worker of four instances, and one of one");
    // Another frontend joins.
    world.send(Event::TokensShared(InstanceId(1), None));
    assert_eq!(slots(&mut world), 5);
    world.send(Event::TokensEnded(InstanceId(1)));
    assert_eq!(slots(&mut world), 2, "the next connection may be to another worker");
}

#[test]
fn slots_of_a_worker_count_for_a_frontend_never_alone_there() {
    let mut world = warm(settings());
    let slots = |world: &mut World| world.dispatcher.reading(world.now, POOL).expect("the pool").slots;
    world.send(Event::TokensOffered(InstanceId(1)));
    world.send(Event::SlotsStated(InstanceId(1), NonZeroU16::new(4).expect("four")));
    assert_eq!(slots(&mut world), 5, "a worker of four instances, and one of one");
    world.send(Event::TokensShared(InstanceId(1), None));
    assert_eq!(slots(&mut world), 5);
}

#[test]
fn model_gets_only_its_own_part_of_the_slots() {
    let (server, other) = (POOL, PoolId(1));
    let mut world = World::new(Settings::uniform(PoolSettings { ahead: Duration::ZERO, ..settings() }), 7);
    let serves = vec![Served::all(server), Served { at_once: NonZeroU16::new(1), ..Served::all(other) }];
    let spec = InstanceSpec { serves, slots: 4, site: Site::default(), learns: false };
    world.send(Event::InstanceJoined(InstanceId(1), spec));
    let ask = |world: &mut World, id, pool| {
        let asked = query(id, world.now + Duration::from_secs(1));
        world.send(Event::QueryArrived(QuerySpec { pool, ..asked }));
    };
    (1..=3).for_each(|id| ask(&mut world, id, other));
    (11..=13).for_each(|id| ask(&mut world, id, server));
    let running = |world: &World, pool| {
        let own = world.running().filter(|(_, held)| held.job.pool == pool);
        own.map(|(id, _)| *id).collect::<Vec<_>>()
    };
    assert_eq!([running(&world, other).len(), running(&world, server).len()], [1, 3], "{:?}", words(&world));
    let reading = world.dispatcher.reading(world.now, other).expect("the pool");
    assert_eq!(reading.slots, 1);
    for left in [1, 1, 0] {
        let job = running(&world, other)[0];
        world.send(Event::JobCompleted(job));
        assert_eq!(running(&world, other).len(), left);
    }
}

/// Whether a slow instance is ejected, at instances with so many slots of which the model may use one.
fn ejects_the_slow(slots: u16) -> bool {
    let mut settings = PoolSettings { ahead: Duration::ZERO, placement: Placement::Turns, ..settings() };
    settings.policy = PolicyKind::None;
    settings.ejection.slow_start = Duration::ZERO;
    let mut world = World::new(Settings::uniform(settings), 7);
    for id in 1..=4 {
        let served = Served { at_once: NonZeroU16::new(1), ..Served::all(POOL) };
        let spec = InstanceSpec { serves: vec![served], slots, site: Site::default(), learns: false };
        world.send(Event::InstanceJoined(InstanceId(id), spec));
    }
    for id in 0..200 {
        let asked = query(id, world.now + Duration::from_secs(5));
        world.send(Event::QueryArrived(asked));
        let (job, at) = world.running().map(|(job, held)| (*job, held.job.instance)).next().expect("it runs");
        let slow = at == InstanceId(2) && id > 100;
        world.advance(Duration::from_millis(if slow { 200 } else { 20 }));
        world.send(Event::JobCompleted(job));
    }
    world.log.iter().any(|(_, action)| matches!(action, Action::Ejected(InstanceId(2), ..)))
}

#[test]
fn slow_instance_is_ejected_however_many_slots_others_may_use() {
    assert!(ejects_the_slow(1));
    assert!(ejects_the_slow(8), "another model of these servers may use all 8 slots");
}
