//! Weighted fair queueing: several models and tenants on the same instances.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use parm_dispatch::{
    Accept, Action, Event, Failure, Grant, InstanceId, InstanceSpec, Note, Order, Payer, PoolId, QueryId,
    QuerySpec, Served, Settings, ShapeId, ShareId, Site, Terms, Token,
};
use parm_settings::{BudgetSettings, EjectionSettings, Fraction, HedgeSettings, PolicyKind, PoolSettings};

use super::script::one_by_one;
use super::world::World;

const HEAVY: PoolId = PoolId(1);
const LIGHT: PoolId = PoolId(2);

fn plain() -> PoolSettings {
    let ejection = EjectionSettings { enabled: false, ..EjectionSettings::default() };
    PoolSettings { policy: PolicyKind::None, ejection, ..one_by_one() }
}

fn ask(world: &mut World, id: u64, pool: PoolId) {
    ask_as(world, id, pool, None, 0);
}

fn ask_as(world: &mut World, id: u64, pool: PoolId, share: Option<u32>, priority: u8) {
    let deadline = world.now + Duration::from_secs(100);
    let query = QuerySpec {
        id: QueryId(id),
        pool,
        shape: ShapeId(0),
        deadline,
        priority,
        share: share.map(ShareId),
        accept: Accept::Any,
        codable: true,
        size: 1,
        padded: false,
    };
    world.send(Event::QueryArrived(query));
}

/// Ends the only job that runs, after what its model takes.
fn end(world: &mut World) -> PoolId {
    end_of(world).0
}

/// The same, with the account that pays.
fn end_of(world: &mut World) -> (PoolId, Payer) {
    let (job, spec) = world.running().map(|(job, held)| (*job, held.job)).next().expect("a job runs");
    let pool = spec.pool;
    world.advance(Duration::from_millis(if pool == HEAVY { 100 } else { 5 }));
    world.send(Event::JobCompleted(job));
    (pool, spec.payer)
}

/// Settings with shares of these weights and reservations.
fn with_shares(shares: &[(f64, u32)], pools: PoolSettings) -> Settings {
    let terms = shares.iter().map(|(weight, reserved)| Terms { weight: *weight, reserved: *reserved });
    let shares = (0..).map(ShareId).zip(terms).collect();
    Settings { shares, ..Settings::uniform(pools) }
}

fn one_instance(settings: Settings) -> World {
    let mut world = World::new(settings, 7);
    let serves = vec![Served::all(HEAVY), Served::all(LIGHT)];
    world.send(Event::InstanceJoined(
        InstanceId(1),
        InstanceSpec { serves, slots: 1, site: Site::default(), learns: false },
    ));
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

/// Milliseconds that the heavy model ran in the first six seconds, while both have a backlog.
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

#[test]
fn tenants_of_one_model_share_turns_and_queue() {
    let few = PoolSettings { queue_limit: 8.try_into().expect("positive"), ..plain() };
    let mut world = one_instance(with_shares(&[(1.0, 0), (1.0, 0)], few));
    (0..20).for_each(|id| ask_as(&mut world, id, LIGHT, Some(0), 0));
    assert_eq!(world.dispatcher.status(LIGHT).map(|status| status.queued), Some(8), "the rest was refused");
    ask_as(&mut world, 100, LIGHT, Some(1), 0);
    let order: Vec<_> = (0..3).map(|_| end_of(&mut world).1).collect();
    assert_eq!(order, [0, 1, 0].map(|share| Payer::Share(ShareId(share))));
}

#[test]
fn a_tenant_has_its_weight_over_all_models_that_it_asks() {
    let mut world = one_instance(with_shares(&[(1.0, 0), (3.0, 0)], plain()));
    for id in 0..150 {
        ask_as(&mut world, id, HEAVY, Some(0), 0);
        ask_as(&mut world, 1000 + id, HEAVY, Some(1), 0);
        (0..10).for_each(|nth| ask_as(&mut world, 10_000 + 10 * id + nth, LIGHT, Some(1), 0));
    }
    let mut had = [0, 0];
    while world.now < parm_dispatch::Time::from_nanos(8_000_000_000) {
        let (pool, payer) = end_of(&mut world);
        had[usize::from(payer == Payer::Share(ShareId(1)))] += if pool == HEAVY { 100 } else { 5 };
    }
    let part = f64::from(had[1]) / f64::from(had[0] + had[1]);
    assert!((part - 0.75).abs() < 0.03, "{had:?}");
    let used =
        |share| world.dispatcher.shares().find(|(payer, _)| *payer == share).expect("it is there").1.used;
    let counted = [0, 1].map(|share| (used(Payer::Share(ShareId(share))) * 1e3).round() as i32);
    assert_eq!(counted, had, "accounts say the same");
}

#[test]
fn priority_counts_within_its_share() {
    let mut world = one_instance(with_shares(&[(1.0, 0), (1.0, 0)], plain()));
    (0..4).for_each(|id| ask_as(&mut world, id, LIGHT, Some(0), 1));
    ask_as(&mut world, 100, LIGHT, Some(1), 200);
    ask_as(&mut world, 101, LIGHT, Some(1), 100);
    let order: Vec<_> = (0..4)
        .map(|_| {
            let rows = world.running().next().expect("a job runs").1.rows.clone();
            end(&mut world);
            rows[0].0
        })
        .collect();
    assert_eq!(order, [0, 101, 1, 100], "turn by turn, and the more urgent first");
}

#[test]
fn reserved_share_goes_first_despite_its_usage() {
    let mut world = one_instance(with_shares(&[(100.0, 0), (1.0, 1)], plain()));
    (0..40).for_each(|id| ask_as(&mut world, id, LIGHT, Some(id as u32 % 2), 0));
    let kept = Payer::Share(ShareId(1));
    end(&mut world);
    (0..10).for_each(|_| assert_eq!(end_of(&mut world).1, kept, "far beyond its weight"));
    let mut world = one_instance(with_shares(&[(100.0, 0), (1.0, 0)], plain()));
    (0..40).for_each(|id| ask_as(&mut world, id, LIGHT, Some(id as u32 % 2), 0));
    let had = (0..20).filter(|_| end_of(&mut world).1 == kept).count();
    assert!(had <= 2, "{had} of 20 where nothing is reserved");
}

#[test]
fn reserved_share_goes_first_at_a_worker_of_one_frontend() {
    let mut world = one_instance(with_shares(&[(100.0, 0), (1.0, 1)], plain()));
    world.send(Event::TokensOffered(InstanceId(1)));
    world.send(Event::TokensShared(InstanceId(1), NonZeroU16::new(1)));
    (0..40).for_each(|id| ask_as(&mut world, id, LIGHT, Some(id as u32 % 2), 0));
    end(&mut world);
    // The queries wait at the frontend, so the worker cannot prefer any.
    let kept = Payer::Share(ShareId(1));
    (0..10).for_each(|_| assert_eq!(end_of(&mut world).1, kept, "far beyond its weight"));
}

#[test]
fn token_serves_the_reserving_share_or_others_if_it_left() {
    for cancelled in [false, true] {
        let mut world = one_instance(with_shares(&[(1.0, 0), (1.0, 0)], plain()));
        world.send(Event::TokensOffered(InstanceId(1)));
        // The first is due here: it arrived first, and neither has used any time.
        [(1, 0), (2, 1)].into_iter().for_each(|(id, share)| ask_as(&mut world, id, HEAVY, Some(share), 0));
        let notes = world.log.iter().filter_map(|(_, action)| match action {
            Action::Tell(_, Order::Reserve(wanted, _, note, _)) => Some((wanted.payer, *note)),
            _ => None,
        });
        let notes: BTreeMap<Payer, Note> = notes.collect();
        let met = notes[&Payer::Share(ShareId(1))];
        if cancelled {
            world.send(Event::QueryCancelled(QueryId(2)));
        }
        let grant = Grant { token: Token(1), lease: None, contended: true, reserved: false, sharers: 2, met };
        world.send(Event::TokenGranted(InstanceId(1), grant));
        let (_, payer) = end_of(&mut world);
        assert_eq!(payer, Payer::Share(ShareId(u32::from(!cancelled))), "the worker knows who is due");
    }
}

/// A world with a query whose hedge waits for the only other instance, which is reserved.
fn hedge_that_waits() -> (World, InstanceId) {
    let pools = PoolSettings { policy: PolicyKind::Hedge, ..plain() };
    let mut world = one_instance(with_shares(&[(1.0, 1), (1.0, 0)], pools));
    for id in 0..300 {
        ask_as(&mut world, id, LIGHT, Some(0), 0);
        end(&mut world);
    }
    join_both(&mut world, 2);
    ask_as(&mut world, 1000, LIGHT, Some(1), 0);
    world.advance(Duration::from_millis(15));
    let at: Vec<_> = world.running().map(|(_, held)| held.job.instance).collect();
    let &[first] = &at[..] else { panic!("a hedge took the instance that is reserved: {at:?}") };
    (world, first)
}

fn join_both(world: &mut World, id: u32) {
    let serves = vec![Served::all(HEAVY), Served::all(LIGHT)];
    world.send(Event::InstanceJoined(
        InstanceId(id),
        InstanceSpec { serves, slots: 1, site: Site::default(), learns: false },
    ));
}

#[test]
fn hedge_takes_a_reserved_instance_when_its_query_hangs() {
    let (mut world, _) = hedge_that_waits();
    world.advance(Duration::from_millis(35));
    assert_eq!(world.running().count(), 2, "only a hedge can answer a hung query");
}

#[test]
fn pending_hedge_becomes_retry_when_original_fails() {
    let (mut world, first) = hedge_that_waits();
    world.send(Event::InstanceLeft(first));
    assert_eq!(world.running().count(), 1, "no other instance has the query");
    end(&mut world);
    let (mut world, first) = hedge_that_waits();
    let job = *world.running().next().expect("it runs").0;
    world.send(Event::JobFailed(job, Failure::Instance));
    let at: Vec<_> = world.running().map(|(_, held)| held.job.instance).collect();
    assert!(at.len() == 1 && at[0] != first, "{at:?} after {first:?}");
}

#[test]
fn retry_behind_many_hedges_takes_a_reserved_instance() {
    let budget = BudgetSettings { ratio: Fraction::percent(10), burst: 40 };
    let hedge = HedgeSettings { budget, ..HedgeSettings::default() };
    let pools = PoolSettings { policy: PolicyKind::Hedge, hedge, ..plain() };
    let mut world = World::new(with_shares(&[(1.0, 1), (1.0, 0)], pools), 7);
    let join = |world: &mut World, id, slots| {
        let spec =
            InstanceSpec { serves: vec![Served::all(LIGHT)], slots, site: Site::default(), learns: false };
        world.send(Event::InstanceJoined(InstanceId(id), spec));
    };
    join(&mut world, 1, 32);
    for id in 0..300 {
        ask_as(&mut world, id, LIGHT, Some(0), 0);
        end(&mut world);
    }
    join(&mut world, 2, 1);
    (1000..1021).for_each(|id| ask_as(&mut world, id, LIGHT, Some(1), 0));
    let at_second = |world: &World| {
        let held = world.running().find(|(_, held)| held.job.instance == InstanceId(2));
        held.map(|(job, held)| (*job, held.rows.clone()))
    };
    let (job, _) = at_second(&world).expect("an idle instance takes a query");
    world.send(Event::JobCompleted(job));
    world.advance(Duration::from_millis(15));
    assert_eq!(at_second(&world), None, "hedges leave the reserved instance");
    assert_eq!(world.running().count(), 20);
    // The last hedge of the line is that of the last query.
    let newest = world.running().max_by_key(|(_, held)| held.rows[0]);
    let (last, rows) = newest.map(|(job, held)| (*job, held.rows.clone())).unwrap();
    world.send(Event::JobFailed(last, Failure::Instance));
    assert_eq!(at_second(&world).map(|(_, rows)| rows), Some(rows), "its query has no other job");
}

#[test]
fn model_with_unknown_times_gets_one_batch_next_to_a_fast_one() {
    let mut world = World::new(Settings::uniform(plain()), 7).given_ahead();
    join_both(&mut world, 1);
    for id in 0..64 {
        ask(&mut world, id, LIGHT);
        let job = *world.running().next().expect("it runs").0;
        world.send(Event::JobCompleted(job));
    }
    (100..120).for_each(|id| ask(&mut world, id, HEAVY));
    assert_eq!(world.running().count(), 1);
}

#[test]
fn moved_batch_of_another_model_starts_at_once() {
    let hedged = |ms| {
        let budget = BudgetSettings { ratio: Fraction::percent(0), burst: 0 };
        let hedge = HedgeSettings { budget, min_delay: Duration::from_millis(ms) };
        PoolSettings { policy: PolicyKind::Hedge, hedge, ..plain() }
    };
    let mut settings = Settings::uniform(hedged(1));
    settings.pools.insert(HEAVY, hedged(500));
    let mut world = World::new(settings, 7).given_ahead();
    join_both(&mut world, 1);
    for id in 0..128 {
        ask(&mut world, id, if id % 2 == 0 { HEAVY } else { LIGHT });
        let job = *world.running().next().expect("it runs").0;
        world.send(Event::JobCompleted(job));
    }
    ask(&mut world, 1000, LIGHT);
    ask(&mut world, 1001, HEAVY);
    join_both(&mut world, 2);
    world.advance(Duration::from_millis(5));
    assert_eq!(world.dispatcher.status(HEAVY).expect("it is used").counters.moved, 1);
    assert_eq!(world.tally.copies, 1, "instance 2 is idle");
}
