//! Queries at fault that are cancelled or expire before a verdict: their neighbours are answered, and the retry budget stays.

use std::num::{NonZeroU8, NonZeroU16};
use std::time::Duration;

use parm_dispatch::{
    Accept, Answer, Event, Failure, InstanceId, InstanceSpec, QueryId, QuerySpec, Served, Settings, ShapeId,
    Site,
};
use parm_settings::{
    BatchSettings, BudgetSettings, EjectionSettings, Fraction, HedgeSettings, PolicyKind, PoolSettings,
};

use super::script::Step::{self, Break, Done, Join, Query, Quiet, Wait, Warm};
use super::script::{one_by_one, play, words};
use super::world::{Fate, POOL, World};

/// Batches of so many queries, and three retries for good.
fn scarce(size: u16) -> PoolSettings {
    let ms = Duration::from_millis;
    PoolSettings {
        policy: PolicyKind::None,
        batch: BatchSettings { max_size: NonZeroU16::new(size).expect("positive").into(), max_delay: ms(5) },
        retry: BudgetSettings { ratio: Fraction::percent(0), burst: 3 },
        retry_elsewhere: ms(20),
        ahead: Duration::ZERO,
        ejection: EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() },
        ..one_by_one()
    }
}

/// How a client whose queries are at fault goes away while an instance tries one of them again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Goes {
    Cancels,
    Expires,
}

fn arrive(world: &mut World, id: u64, ms: u64) {
    let query = QuerySpec {
        id: QueryId(id),
        pool: POOL,
        shape: ShapeId(0),
        deadline: world.now + Duration::from_millis(ms),
        priority: 0,
        share: None,
        accept: Accept::Any,
        codable: true,
        size: 1,
        padded: false,
    };
    world.send(Event::QueryArrived(query));
}

/// Queries with odd numbers fail on both instances. In each of ten rounds a bad and a good query arrive, and the bad one
/// goes away at its `attempt`th try. Returns the fates of the good queries, and of one that an instance fails.
fn answers(size: u16, failure: Failure, goes: Goes, attempt: usize) -> Vec<Fate> {
    let mut world = World::new(Settings::uniform(scarce(size)), 7);
    for id in [1, 2] {
        let spec =
            InstanceSpec { serves: vec![Served::all(POOL)], slots: 1, site: Site::default(), learns: false };
        world.send(Event::InstanceJoined(InstanceId(id), spec));
    }
    for round in 0..10 {
        let bad = 2 * round + 1;
        arrive(&mut world, bad, 40);
        arrive(&mut world, bad + 1, 1000);
        let mut tried = 0;
        for _ in 0..100 {
            let running: Vec<_> = world.running().map(|(id, held)| (*id, held.rows.clone())).collect();
            for (job, rows) in running {
                let is_bad = rows.contains(&QueryId(bad));
                tried += usize::from(is_bad);
                if is_bad && tried == attempt {
                    match goes {
                        Goes::Cancels => world.send(Event::QueryCancelled(QueryId(bad))),
                        Goes::Expires => world.advance(Duration::from_millis(50)),
                    }
                }
                let event = if is_bad { Event::JobFailed(job, failure) } else { Event::JobCompleted(job) };
                world.send(event);
            }
            world.advance(Duration::from_millis(1));
        }
    }
    // At last an instance fails a good query.
    arrive(&mut world, 100, 1000);
    world.advance(Duration::from_millis(5));
    for end in [|job| Event::JobFailed(job, Failure::Instance), Event::JobCompleted] {
        let job = world.running().next().map(|(job, _)| *job);
        job.into_iter().for_each(|job| world.send(end(job)));
        world.advance(Duration::from_millis(30));
    }
    world.finish();
    let good = world.queries.iter().filter(|(id, _)| id.0 % 2 == 0);
    good.map(|(_, tracked)| tracked.fate).collect()
}

#[track_caller]
fn are_answered(size: u16, failure: Failure, attempts: std::ops::RangeInclusive<usize>) {
    for goes in [Goes::Cancels, Goes::Expires] {
        for attempt in attempts.clone() {
            let fates = answers(size, failure, goes, attempt);
            let exact = |fate: &Fate| matches!(fate, Fate::Answered(Answer::Exact { .. }));
            assert!(fates.iter().all(exact), "batches of {size}, {goes:?} at try {attempt}: {fates:?}");
        }
    }
}

#[test]
fn batches_are_retried_when_refused_queries_are_cancelled() {
    are_answered(2, Failure::Query, 2..=2);
}

#[test]
fn batches_are_retried_when_breaking_queries_are_cancelled() {
    are_answered(2, Failure::Model, 2..=3);
}

#[test]
fn failed_query_is_retried_when_breaking_ones_were_cancelled() {
    are_answered(1, Failure::Model, 2..=2);
}

#[test]
fn good_query_is_answered_when_copies_of_its_batch_are_refused() {
    // A batch of query 1, which every instance refuses, and query 2 hangs at its first instance.
    for failure in [Failure::Query, Failure::Model] {
        let alone = PoolSettings { ahead: Duration::ZERO, ..hedging() };
        let batch = BatchSettings {
            max_size: NonZeroU16::new(2).expect("positive").into(),
            max_delay: Duration::from_millis(5),
        };
        let pairs = Box::new(PoolSettings { batch, ..alone.clone() });
        let joins = [Join(2), Join(3), Join(4), Step::Settings(pairs), Quiet];
        let steps = [&[Join(1), Warm(80)], &joins[..], &[Query(1), Query(2)]].concat();
        let mut world = play(alone, &steps);
        let hung = world.running().next().expect("a batch").1.job.instance;
        for _ in 0..900 {
            world.advance(Duration::from_millis(1));
            let elsewhere = world.running().filter(|(_, held)| held.job.instance != hung);
            let jobs: Vec<_> = elsewhere.map(|(id, held)| (*id, held.rows.contains(&QueryId(1)))).collect();
            for (job, is_bad) in jobs {
                world.send(if is_bad { Event::JobFailed(job, failure) } else { Event::JobCompleted(job) });
            }
        }
        let fate = &world.queries[&QueryId(2)].fate;
        assert!(matches!(fate, Fate::Answered(Answer::Hedged { .. })), "{failure:?} {:?}", words(&world));
    }
}

#[test]
fn query_that_kills_instances_does_not_kill_them_all() {
    let settings = PoolSettings { ahead: Duration::ZERO, ..hedging() };
    let joins: Vec<_> = (2..=12).map(Join).collect();
    let steps = [&[Join(1), Warm(120)], &joins[..], &[Wait(2000), Quiet, Query(1)]].concat();
    let mut world = play(settings, &steps);
    let hung = world.running().next().expect("its first job").1.job.instance;
    let mut killed = 0;
    for _ in 0..900 {
        world.advance(Duration::from_millis(1));
        let elsewhere = world.running().filter(|(_, held)| held.job.instance != hung);
        let jobs: Vec<_> = elsewhere.map(|(id, held)| (*id, held.job.instance)).collect();
        for (job, instance) in jobs {
            world.send(Event::JobFailed(job, Failure::Instance));
            world.send(Event::InstanceLeft(instance));
            killed += 1;
        }
    }
    assert!(killed <= 3, "three attempts are allowed: {:?}", words(&world));
}

fn hedging() -> PoolSettings {
    let budget = BudgetSettings { ratio: Fraction::percent(100), burst: 10_000 };
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    let hedge = HedgeSettings { budget, ..HedgeSettings::default() };
    PoolSettings { policy: PolicyKind::Hedge, ejection, hedge, ..one_by_one() }
}

#[test]
fn failures_of_a_batch_with_a_bad_query_are_no_attempts() {
    let two = NonZeroU8::new(2).expect("positive");
    let mut world = World::new(Settings::uniform(PoolSettings { max_attempts: two, ..scarce(2) }), 7);
    for id in 1..=3 {
        let spec =
            InstanceSpec { serves: vec![Served::all(POOL)], slots: 1, site: Site::default(), learns: false };
        world.send(Event::InstanceJoined(InstanceId(id), spec));
    }
    let (bad, good) = (QueryId(1), QueryId(2));
    arrive(&mut world, 1, 1000);
    arrive(&mut world, 2, 1000);
    let mut alone = 0;
    for _ in 0..200 {
        let running: Vec<_> = world.running().map(|(id, held)| (*id, held.rows.clone())).collect();
        for (job, rows) in running {
            alone += usize::from(rows[..] == [good]);
            let failure = if rows.contains(&bad) { Failure::Model } else { Failure::Instance };
            // The first instance that runs the good query alone is lost.
            let fails = rows.contains(&bad) || alone == 1;
            world.send(if fails { Event::JobFailed(job, failure) } else { Event::JobCompleted(job) });
        }
        world.advance(Duration::from_millis(1));
    }
    let fate = &world.queries[&good].fate;
    assert!(alone == 2 && matches!(fate, Fate::Answered(Answer::Exact { .. })), "{alone}: {fate:?}");
}

#[test]
fn good_query_is_answered_next_to_a_bad_one_with_one_attempt() {
    let four = NonZeroU16::new(4).expect("positive");
    let batch = BatchSettings { max_size: four.into(), max_delay: Duration::ZERO };
    let settings = PoolSettings { batch, max_attempts: NonZeroU8::MIN, ..hedging() };
    // The second and the third query share a batch, which breaks.
    let steps = [Join(1), Query(1), Query(2), Query(3), Wait(5), Done(1), Break(1), Wait(1)];
    let words = words(&play(settings, &steps));
    assert!(words.iter().all(|word| !word.contains("answer 3 Failed")), "{words:?}");
}
