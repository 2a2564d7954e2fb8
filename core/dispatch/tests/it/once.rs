//! Queries that are sent to an instance at most once.

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::time::Duration;

use parm_dispatch::{Action, Event, Failure, JobId, QueryId, Time};
use parm_settings::{EjectionSettings, PolicyKind, PoolSettings};

use super::script::Step::{Join, Query, Quiet, Within};
use super::script::{act, one_by_one, play, words};
use super::world::{POOL, World};

fn once() -> PoolSettings {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    PoolSettings { policy: PolicyKind::Once, ejection, ..one_by_one() }
}

/// The instance that runs the first query certainly did not get it.
fn refuse_connection(world: &mut World) {
    let job = *world.running().find(|(_, held)| held.rows.contains(&QueryId(1))).expect("it runs").0;
    world.send(Event::JobFailed(job, Failure::Unsent));
}

#[test]
fn query_is_sent_elsewhere_if_an_instance_did_not_get_it() {
    let settings = PoolSettings { max_attempts: NonZeroU8::MIN, ..once() };
    let mut world = play(settings, &[Join(1), Join(2), Quiet, Query(1)]);
    refuse_connection(&mut world);
    assert!(words(&world).iter().all(|word| !word.contains("Failed")), "{:?}", words(&world));
}

#[test]
fn query_sent_once_passes_three_dead_servers() {
    let joins: Vec<_> = (1..=8).map(Join).collect();
    let mut world = play(once(), &[&joins[..], &[Quiet, Query(1)]].concat());
    (0..3).for_each(|_| refuse_connection(&mut world));
    assert!(words(&world).iter().all(|word| !word.contains("Failed")), "{:?}", words(&world));
}

/// Whether a query breaks the model wherever it runs, as three in ten do.
fn is_bad(query: u64) -> bool {
    let mut mixed = query.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed >> 40) % 10 < 3
}

/// Sends queries, one each 5 ms, to so many instances, which take 10 ms. `fails` decides by instance and query. Probes pass.
fn serve(
    settings: PoolSettings,
    instances: u32,
    queries: u64,
    fails: impl Fn(u32, u64) -> Option<Failure>,
) -> World {
    let joins: Vec<_> = (1..=instances).map(Join).collect();
    let mut world = play(settings, &[&joins[..], &[Quiet]].concat());
    let mut began: BTreeMap<JobId, Time> = BTreeMap::new();
    for id in 0..queries {
        act(&mut world, &Within(id, 10_000));
        world.advance(Duration::from_millis(5));
        let running = world.running().map(|(id, held)| (*id, held.job.instance.0, held.rows[0].0));
        let running: Vec<_> = running.collect();
        for (job, at, query) in running {
            let since = *began.entry(job).or_insert(world.now);
            let failure = fails(at, query);
            if failure == Some(Failure::Unsent) || world.now.since(since) >= Duration::from_millis(10) {
                world.send(failure.map_or(Event::JobCompleted(job), |why| Event::JobFailed(job, why)));
            }
        }
        let probes: Vec<_> = world.probes.iter().copied().collect();
        probes.into_iter().for_each(|(id, pool)| world.send(Event::ProbeAnswered(id, pool, true)));
    }
    world
}

fn failed(world: &World) -> usize {
    words(world).iter().filter(|word| word.ends_with("Failed") || word.ends_with("BadQuery")).count()
}

#[test]
fn bad_requests_that_are_sent_once_eject_no_healthy_instance() {
    let single = PoolSettings { max_attempts: NonZeroU8::MIN, ..once() };
    for settings in [once(), single] {
        let world = serve(settings, 6, 4000, |_, query| is_bad(query).then_some(Failure::Model));
        let ejected = world.log.iter().filter(|(_, action)| matches!(action, Action::Ejected(..))).count();
        assert!(ejected == 0 && failed(&world) > 1000, "{ejected} ejections, {} failed", failed(&world));
    }
}

#[test]
fn broken_instance_on_trial_fails_one_query_sent_once() {
    let world = serve(once(), 4, 12_000, |at, _| (at == 1).then_some(Failure::Model));
    // It is on trial every two seconds of sixty.
    assert!((20..=40).contains(&failed(&world)), "{}", failed(&world));
}

#[test]
fn query_sent_once_passes_servers_that_are_ejected_meanwhile() {
    let settings = PoolSettings { max_attempts: NonZeroU8::new(3).expect("positive"), ..once() };
    let world = serve(settings, 10, 300, |at, _| (at <= 7).then_some(Failure::Unsent));
    let refused = world.dispatcher.status(POOL).expect("known").counters.retries_refused;
    assert!(failed(&world) as u64 <= refused, "{} failed, {refused} without a retry", failed(&world));
}
