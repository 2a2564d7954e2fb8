//! Several models on the same instances: whose query is next.

use std::num::NonZeroU16;
use std::time::Duration;

use parm_dispatch::{
    Accept, EjectionSettings, Event, InstanceId, InstanceSpec, PolicyKind, PoolId, PoolSettings, QueryId,
    QuerySpec, Served, Settings, ShapeId,
};

use super::world::World;

const HEAVY: PoolId = PoolId(1);
const LIGHT: PoolId = PoolId(2);

fn plain() -> PoolSettings {
    let ejection = EjectionSettings { enabled: false, ..EjectionSettings::default() };
    PoolSettings { policy: PolicyKind::None, ejection, ..PoolSettings::default() }
}

fn ask(world: &mut World, id: u64, pool: PoolId) {
    let deadline = world.now + Duration::from_secs(100);
    let query = QuerySpec {
        id: QueryId(id),
        pool,
        shape: ShapeId(0),
        deadline,
        priority: 0,
        accept: Accept::Any,
        codable: true,
    };
    world.send(Event::QueryArrived(query));
}

/// Ends the only job that runs, after what its model takes.
fn end(world: &mut World) -> PoolId {
    let (job, pool) = world.running().map(|(job, held)| (*job, held.job.pool)).next().expect("a job runs");
    world.advance(Duration::from_millis(if pool == HEAVY { 100 } else { 5 }));
    world.send(Event::JobCompleted(job));
    pool
}

fn one_instance(settings: Settings) -> World {
    let mut world = World::new(settings, 7);
    let serves = vec![Served::all(HEAVY), Served::all(LIGHT)];
    world.send(Event::InstanceJoined(InstanceId(1), InstanceSpec { serves, slots: 1, node: None }));
    world
}

#[test]
fn a_flood_on_one_model_leaves_another_its_turn() {
    let mut world = one_instance(Settings::uniform(plain()));
    (0..50).for_each(|id| ask(&mut world, id, HEAVY));
    (0..10).for_each(|_| assert_eq!(end(&mut world), HEAVY));
    ask(&mut world, 100, LIGHT);
    assert_eq!(end(&mut world), HEAVY, "it runs already");
    assert_eq!(end(&mut world), LIGHT, "before 39 that came earlier");
    assert_eq!(end(&mut world), HEAVY);
}

/// Milliseconds that the heavy model had of the first so many seconds, while both want more.
fn heavy_part(settings: Settings) -> u64 {
    let mut world = one_instance(settings);
    for id in 0..200 {
        ask(&mut world, id, HEAVY);
        (0..5).for_each(|nth| ask(&mut world, 1000 + 5 * id + nth, LIGHT));
    }
    let mut heavy = 0;
    while world.now < parm_dispatch::Time::from_nanos(6_000_000_000) {
        heavy += u64::from(end(&mut world) == HEAVY) * 100;
    }
    heavy
}

#[test]
fn models_share_the_time_by_weight_and_not_by_number() {
    let even = heavy_part(Settings::uniform(plain()));
    assert!((2_800..=3_200).contains(&even), "{even} ms of 6000 for one of two");
    let mut settings = Settings::uniform(plain());
    settings.pools.insert(HEAVY, PoolSettings { weight: NonZeroU16::new(3).expect("positive"), ..plain() });
    let three_quarters = heavy_part(settings);
    assert!((4_300..=4_700).contains(&three_quarters), "{three_quarters} ms of 6000 for three parts of four");
}

#[test]
fn priority_goes_before_shares() {
    let mut settings = Settings::uniform(plain());
    let first = PoolSettings { default_priority: 1.try_into().expect("positive"), ..plain() };
    settings.pools.insert(HEAVY, first);
    let mut world = one_instance(settings);
    (0..4).for_each(|id| ask(&mut world, id, HEAVY));
    ask(&mut world, 100, LIGHT);
    let order: Vec<_> = (0..5).map(|_| end(&mut world)).collect();
    assert_eq!(order, [HEAVY, HEAVY, HEAVY, HEAVY, LIGHT]);
}
