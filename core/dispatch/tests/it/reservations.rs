//! Work and the workers at which it reserves.

use std::num::NonZeroU16;
use std::time::Duration;

use parm_dispatch::{
    Action, Class, Event, Failure, Grant, InstanceId, InstanceSpec, Note, Order, PoolId, QueryId, QuerySpec,
    Served, Settings, ShareId, Site, Terms, Token,
};
use parm_settings::{BatchSettings, PolicyKind, PoolSettings};
use parm_tokens::{Desk, Frontend};

use super::coded::{parm, plus};
use super::outage::exact_otherwise;
use super::script::Step::{
    Cancel, Cost, Done, Drain, Encoded, Join, JoinApart, Leave, Query, Quiet, Unload, Wait, Warm,
};
use super::script::{Step, act, one_by_one, play, query, words};
use super::world::{POOL, World};

const MS: Duration = Duration::from_millis(1);

/// The latest reservation at an instance.
fn reservation_at(world: &World, instance: u32) -> Option<(Class, Note)> {
    world.log.iter().rev().find_map(|(_, action)| match action {
        Action::Tell(id, Order::Reserve(_, class, note, _)) if *id == InstanceId(instance) => {
            Some((*class, *note))
        }
        _ => None,
    })
}

/// The instance gives a token that other frontends wait for.
fn grant(world: &mut World, instance: u32, met: Note) {
    let token = Token(instance);
    let grant = Grant { token, lease: None, contended: true, reserved: false, sharers: 2, met };
    world.send(Event::TokenGranted(InstanceId(instance), grant));
}

/// Returns the reservations that a busy worker has, which knows both versions by one name.
fn reservations_at_a_worker(world: &World) -> Vec<Note> {
    let (ours, other) = (Frontend(1), Frontend(2));
    let mut desk: Desk<()> = Desk::new(1, parm_tokens::Settings::default());
    [ours, other].into_iter().for_each(|frontend| desk.join(frontend));
    desk.begin(false, Duration::ZERO);
    for (at, action) in &world.log {
        let Action::Tell(_, order) = action else { continue };
        let order = match *order {
            Order::Reserve(_, class, note, waited) => Order::Reserve((), class, note, waited),
            Order::Withdraw(_) => Order::Withdraw(()),
            Order::GiveBack(token) => Order::GiveBack(token),
        };
        desk.told(ours, order, at.as_nanos());
    }
    desk.reservations().iter().map(|known| known.note).collect()
}

/// A query of each of two versions waits for instance 1.
fn two_versions() -> World {
    let (old, new) = (POOL, PoolId(1));
    let mut world = World::new(Settings::uniform(one_by_one()), 7);
    world.send(Event::VersionAdded { pool: new, predecessor: old });
    let serves = vec![Served::all(old), Served::all(new)];
    let spec = InstanceSpec { serves, slots: 1, site: Site::default(), learns: false };
    world.send(Event::InstanceJoined(InstanceId(1), spec));
    world.send(Event::TokensOffered(InstanceId(1)));
    for (id, pool) in [(1, old), (2, new)] {
        let asked = query(id, world.now + 1000 * MS);
        world.send(Event::QueryArrived(QuerySpec { pool, ..asked }));
        world.advance(MS);
    }
    world
}

#[test]
fn reservation_stays_when_another_version_withdraws_its_own() {
    let mut world = two_versions();
    let waits = world.log.iter().filter_map(|(_, action)| match action {
        Action::Tell(_, Order::Reserve(.., waited)) => Some(*waited),
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [Duration::ZERO, MS], "the old version's query waited first");
    world.send(Event::QueryCancelled(QueryId(1)));
    let (_, note) = reservation_at(&world, 1).expect("one of each version");
    assert_eq!(
        reservations_at_a_worker(&world),
        [note],
        "the new version's query waits: {:?}",
        words(&world)
    );
    world.send(Event::QueryCancelled(QueryId(2)));
    assert!(words(&world).last().is_some_and(|word| word.contains("Withdraw")), "{:?}", words(&world));
}

#[test]
fn reservation_stays_when_another_version_is_unloaded() {
    for gone in [POOL, PoolId(1)] {
        let mut world = two_versions();
        world.send(Event::PoolRemoved(gone));
        assert_eq!(reservations_at_a_worker(&world).len(), 1, "{gone:?} is gone: {:?}", words(&world));
    }
}

#[test]
fn retry_keeps_its_reservation_when_its_first_query_leaves() {
    let batch = BatchSettings { max_size: NonZeroU16::new(2).expect("positive").into(), max_delay: MS };
    let pools = PoolSettings { batch, ..one_by_one() };
    let shares = [(ShareId(0), Terms { weight: 1.0, reserved: 0 })].into_iter().collect();
    let mut world = World::new(Settings { shares, ..Settings::uniform(pools) }, 7);
    [Join(1), Join(2)].iter().for_each(|step| act(&mut world, step));
    for id in [1, 2] {
        let asked = query(id, world.now + 1000 * MS);
        world.send(Event::QueryArrived(QuerySpec { share: Some(ShareId(0)), ..asked }));
    }
    [1, 2].into_iter().for_each(|id| world.send(Event::TokensOffered(InstanceId(id))));
    let (job, at) = world.running().map(|(id, held)| (*id, held.job.instance.0)).next().expect("a batch");
    world.send(Event::JobFailed(job, Failure::Instance));
    world.send(Event::QueryCancelled(QueryId(1)));
    act(&mut world, &Quiet);
    act(&mut world, &Wait(60));
    let (class, met) = reservation_at(&world, 3 - at).expect("repeated after 50 ms");
    assert_eq!(class, Class::Late);
    grant(&mut world, 3 - at, met);
    assert!(words(&world).contains(&format!("60 run 2 on {}", 3 - at)), "{:?}", words(&world));
}

#[test]
fn reservation_of_an_unloaded_model_is_withdrawn() {
    let mut world = play(one_by_one(), &[Join(1)]);
    world.send(Event::TokensOffered(InstanceId(1)));
    [Query(1), Quiet, Unload].iter().for_each(|step| act(&mut world, step));
    assert!(words(&world).iter().any(|word| word.contains("Withdraw")), "{:?}", words(&world));
}

/// Two shared workers, of which the first runs a query that is late by now.
fn late_query() -> World {
    let settings = PoolSettings { policy: PolicyKind::Hedge, ahead: Duration::ZERO, ..one_by_one() };
    let mut world = play(settings, &[Join(1), Warm(80), Join(2)]);
    [1, 2].into_iter().for_each(|id| world.send(Event::TokensOffered(InstanceId(id))));
    act(&mut world, &Query(1));
    grant(&mut world, 1, Note::default());
    world.log.clear();
    act(&mut world, &Wait(40));
    world
}

#[test]
fn hedge_reserves_only_at_instances_that_may_run_it() {
    let world = late_query();
    let at = |instance| reservation_at(&world, instance).map(|(class, _)| class);
    assert_eq!((at(1), at(2)), (None, Some(Class::Late)), "1 holds the query: {:?}", words(&world));
}

#[test]
fn reservation_of_a_hedge_ends_with_its_query() {
    let mut world = late_query();
    act(&mut world, &Quiet);
    act(&mut world, &Done(1));
    assert!(words(&world).iter().any(|word| word.contains("Withdraw")), "{:?}", words(&world));
    act(&mut world, &Quiet);
    act(&mut world, &Wait(1000));
    assert!(world.log.len() < 10, "nothing waits: {:?}", world.log);
}

/// The reservations that a worker knows after these orders.
fn known_at(world: &World, instance: u32) -> Vec<Class> {
    let mut desk: Desk<PoolId> = Desk::new(1, parm_tokens::Settings::default());
    [Frontend(1), Frontend(2)].into_iter().for_each(|frontend| desk.join(frontend));
    desk.begin(false, Duration::ZERO);
    for (at, action) in &world.log {
        let Action::Tell(InstanceId(id), order) = action else { continue };
        let order = match *order {
            Order::Reserve(of, class, note, waited) => Order::Reserve(of.pool, class, note, waited),
            Order::Withdraw(of) => Order::Withdraw(of.pool),
            Order::GiveBack(token) => Order::GiveBack(token),
        };
        if *id == instance {
            desk.told(Frontend(1), order, at.as_nanos());
        }
    }
    desk.reservations().iter().map(|known| known.class).collect()
}

#[test]
fn reservation_is_withdrawn_unless_it_is_renewed() {
    let mut world = play(one_by_one(), &[Join(1), Join(2)]);
    [1, 2].into_iter().for_each(|id| world.send(Event::TokensOffered(InstanceId(id))));
    [Query(1), Wait(1), Drain(2)].iter().for_each(|step| act(&mut world, step));
    assert_eq!(known_at(&world, 2), [Class::Query]);
    act(&mut world, &Wait(100));
    assert_eq!((known_at(&world, 1), known_at(&world, 2)), (vec![Class::Query], vec![]), "2 runs nothing");
    act(&mut world, &Cancel(1));
    assert_eq!([1, 2].map(|id| known_at(&world, id).len()), [0, 0], "{:?}", words(&world));
}

#[test]
fn renewal_ends_the_reservation_of_late_work_that_is_gone() {
    let settings = PoolSettings { policy: PolicyKind::Hedge, ahead: Duration::ZERO, ..one_by_one() };
    let mut world = play(settings, &[Join(1), Warm(80), Join(2)]);
    [1, 2].into_iter().for_each(|id| world.send(Event::TokensOffered(InstanceId(id))));
    act(&mut world, &Query(1));
    grant(&mut world, 1, Note::default());
    act(&mut world, &Wait(40));
    assert_eq!(known_at(&world, 2).last(), Some(&Class::Late), "{:?}", words(&world));
    [Query(2), Done(1), Wait(100)].iter().for_each(|step| act(&mut world, step));
    assert_eq!(known_at(&world, 2), [Class::Query], "{:?}", words(&world));
}

/// Instances 1 to 3 have all models, and a shared worker has only the stand-in.
const FLEET: [Step; 7] = [Cost([25, 50, 100, 200]), Join(1), Warm(80), Join(2), Join(3), JoinApart(9), Quiet];

#[test]
fn stand_in_runs_at_a_shared_worker_without_the_deployed_model() {
    let mut late = PoolSettings { stand_in: Default::default(), ..exact_otherwise() };
    (late.stand_in.spare, late.stand_in.hedge) = (false, false);
    let busy = [Query(1), Query(2), Query(3), Wait(30)];
    let gone = [Leave(1), Leave(2), Leave(3), Query(1)];
    for (settings, steps) in [(late, busy), (exact_otherwise(), gone)] {
        let mut world = play(settings, &FLEET);
        world.send(Event::TokensOffered(InstanceId(9)));
        steps.iter().for_each(|step| act(&mut world, step));
        let Some((class, met)) = reservation_at(&world, 9) else { panic!("{:?}", words(&world)) };
        assert_eq!(class, Class::Late);
        grant(&mut world, 9, met);
        let runs = |word: &String| word.contains("late stand-in") && word.ends_with("on 9");
        assert!(words(&world).iter().any(runs), "{:?}", words(&world));
    }
}

#[test]
fn late_query_reserves_nothing_once_its_model_is_unloaded() {
    let mut late = PoolSettings { stand_in: Default::default(), ..exact_otherwise() };
    (late.stand_in.spare, late.stand_in.hedge) = (false, false);
    let mut world = play(late, &FLEET);
    world.send(Event::TokensOffered(InstanceId(9)));
    [Query(1), Query(2), Query(3), Wait(30)].iter().for_each(|step| act(&mut world, step));
    assert_eq!(known_at(&world, 9), [Class::Late], "{:?}", words(&world));
    // Their jobs go on.
    act(&mut world, &Unload);
    assert_eq!(known_at(&world, 9), [], "{:?}", words(&world));
    act(&mut world, &Quiet);
    act(&mut world, &Wait(500));
    assert!(world.log.len() < 10, "nothing waits: {:?}", world.log);
}

#[test]
fn redundancy_runs_at_a_shared_worker_that_is_kept_for_it() {
    let backup = PoolSettings { policy: PolicyKind::ApproximateBackup, ..plus(2, 1) };
    for (settings, steps, runs) in [
        (parm(), &[Query(1), Query(2), Encoded][..], "parity 0 on 3"),
        (backup, &[Query(1)][..], "backup 1 on 3"),
    ] {
        let mut world = play(settings, &[Join(1), Join(2), Join(3)]);
        world.send(Event::TokensOffered(InstanceId(3)));
        steps.iter().for_each(|step| act(&mut world, step));
        let Some((class, met)) = reservation_at(&world, 3) else { panic!("{:?}", words(&world)) };
        assert_eq!(class, Class::Spare);
        grant(&mut world, 3, met);
        assert!(words(&world).pop().is_some_and(|last| last.ends_with(runs)), "{:?}", words(&world));
        world.finish();
        let told = words(&world);
        let tokens = told.iter().filter(|word| word.contains("Reserve") || word.contains("Withdraw"));
        assert!(tokens.count() < 40, "{told:?}");
    }
}
