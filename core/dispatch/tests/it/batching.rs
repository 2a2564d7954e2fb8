//! Batches whose size is not fixed.

use std::num::NonZeroU16;
use std::ops::Range;
use std::time::Duration;

use parm_dispatch::{Event, Failure, QueryId};
use parm_settings::{BatchSettings, BatchSize, PolicyKind, PoolSettings};

use super::script::Step::{Done, Join, Wait, Within};
use super::script::{act, play, words};
use super::world::{Fate, POOL, World};

fn auto() -> PoolSettings {
    let batch = BatchSettings { max_size: BatchSize::Auto, ..BatchSettings::default() };
    PoolSettings { policy: PolicyKind::None, batch, ..PoolSettings::default() }
}

/// The rows of the batch that runs on the only instance.
fn running(world: &World) -> Option<usize> {
    world.running().next().map(|(_, held)| held.rows.len())
}

/// The sizes of the batches of 900 queries that arrive at once, at an engine that takes so many milliseconds for a
/// batch, after ten single queries.
fn sizes(time: fn(u64) -> u64) -> Vec<usize> {
    run(time).1
}

/// The world after these batches.
fn learned(time: fn(u64) -> u64) -> World {
    run(time).0
}

fn run(time: fn(u64) -> u64) -> (World, Vec<usize>) {
    let mut world = play(auto(), &[Join(1)]);
    let single = (0..10).flat_map(|id| [Within(id, 60_000), Wait(time(1)), Done(1)]);
    single.for_each(|step| act(&mut world, &step));
    (10..910).for_each(|id| act(&mut world, &Within(id, 60_000)));
    let mut sizes = Vec::new();
    while let Some(rows) = running(&world) {
        sizes.push(rows);
        act(&mut world, &Wait(time(rows as u64)));
        act(&mut world, &Done(1));
    }
    assert_eq!(sizes.iter().sum::<usize>(), 900);
    (world, sizes)
}

#[test]
fn batches_grow_where_they_save_work() {
    let sizes = sizes(|rows| 20 + rows / 4);
    assert_eq!(sizes[..2], [1, 2], "one doubling after the other");
    assert!(sizes.contains(&64), "{sizes:?}");
}

#[test]
fn batches_that_save_nothing_are_tried_and_dropped() {
    let sizes = sizes(|rows| 20 * rows);
    assert!(sizes.iter().all(|rows| *rows <= 2), "{sizes:?}");
    let last = &sizes[sizes.len() - 50..];
    assert!(last.iter().filter(|rows| **rows == 2).count() < 10, "{sizes:?}");
}

#[test]
fn batches_stop_at_the_step_of_an_engine() {
    let sizes = sizes(|rows| 20 * rows.div_ceil(4));
    assert!(sizes.iter().all(|rows| *rows <= 8), "{sizes:?}");
    let last = &sizes[sizes.len() - 50..];
    assert!(last.iter().filter(|rows| **rows == 4).count() > 40, "four at a time: {sizes:?}");
}

#[test]
fn no_batch_is_longer_than_a_deadline_allows() {
    let mut world = play(auto(), &[Join(1)]);
    let single = (0..10).flat_map(|id| [Within(id, 200), Wait(20), Done(1)]);
    single.for_each(|step| act(&mut world, &step));
    for round in 0..200 {
        // More than the instance can do.
        (0..10).for_each(|id| act(&mut world, &Within(100 + round * 10 + id, 200)));
        let rows = running(&world).expect("queries wait");
        assert!(rows * 15 < 200, "{rows} rows would take longer than their deadline");
        act(&mut world, &Wait(10 + 10 * rows as u64));
        act(&mut world, &Done(1));
    }
}

#[test]
fn single_query_of_an_idle_pool_starts_at_once() {
    let mut world = play(auto(), &[Join(1), Join(2)]);
    // A load at which batches of an engine without a cost for rows would pay.
    for id in 0..4000 {
        act(&mut world, &Within(id, 60_000));
        if id % 20 == 19 {
            let at = world.running().map(|(_, held)| held.job.instance.0).min();
            at.into_iter().for_each(|instance| act(&mut world, &Done(instance)));
            act(&mut world, &Wait(5));
        }
    }
    while let Some(instance) = world.running().map(|(_, held)| held.job.instance.0).min() {
        act(&mut world, &Done(instance));
    }
    act(&mut world, &Within(5000, 60_000));
    assert_eq!(running(&world), Some(1));
}

#[test]
fn few_short_deadlines_do_not_end_the_batches_of_others() {
    let mut world = learned(|rows| 20 + rows / 4);
    (1000..1900).for_each(|id| act(&mut world, &Within(id, 60_000)));
    let mut sizes = Vec::new();
    for round in 0..10 {
        act(&mut world, &Within(2000 + round, 25));
        let rows = running(&world).expect("queries wait");
        sizes.push(rows);
        act(&mut world, &Wait(20 + rows as u64 / 4));
        act(&mut world, &Done(1));
    }
    assert!(sizes[1..].iter().all(|rows| *rows > 16), "{sizes:?}");
}

#[test]
fn query_that_has_no_time_for_company_starts_at_once() {
    let mut world = learned(|rows| 20 + rows / 4);
    act(&mut world, &Join(2));
    // A load at which batches of 28 rows are needed.
    for id in 1000..6000 {
        act(&mut world, &Within(id, 60_000));
        if id % 2 == 1 {
            act(&mut world, &Wait(1));
        }
        if id % 28 == 0 {
            let at = world.running().map(|(_, held)| held.job.instance.0).min();
            at.into_iter().for_each(|instance| act(&mut world, &Done(instance)));
        }
    }
    while let Some(instance) = world.running().map(|(_, held)| held.job.instance.0).min() {
        act(&mut world, &Done(instance));
    }
    [Within(7000, 60_000), Within(7001, 60_000), Wait(10)].iter().for_each(|step| act(&mut world, step));
    assert_eq!(world.running().count(), 2, "company did not come");
    [Within(7002, 25), Within(7003, 60_000), Done(1)].iter().for_each(|step| act(&mut world, step));
    assert!(world.running().any(|(_, held)| held.rows.contains(&QueryId(7002))), "an instance is free");
}

#[test]
fn status_has_rows_of_batches_and_the_objective() {
    let (world, sizes) = run(|rows| 20 + rows / 4);
    let status = world.dispatcher.status(POOL).expect("it has been used");
    let counted = (status.counters.batches, status.counters.batch_rows);
    assert_eq!(counted, (10 + sizes.len() as u64, 910));
    let latency = status.latency.expect("many answers");
    let off = latency.objective.as_secs_f64() / 60.0 - 1.0;
    assert!(off.abs() < 1e-6, "the deadline of all queries: {latency:?}");
    // All arrived at once, so the last batches have the p99.
    let took: u64 = sizes.iter().map(|rows| 20 + *rows as u64 / 4).sum();
    let part = latency.p99.as_secs_f64() * 1e3 / took as f64;
    assert!((0.9..1.05).contains(&part), "{latency:?} of {took} ms");
    assert!((latency.used() - latency.p99.as_secs_f64() / 60.0).abs() < 1e-6);
}

#[test]
fn batch_does_not_wait_for_company_beyond_the_deadline() {
    let eight = NonZeroU16::new(8).expect("positive");
    let batch = BatchSettings { max_size: eight.into(), max_delay: Duration::from_millis(100) };
    let world = play(PoolSettings { batch, ..auto() }, &[Join(1), Within(1, 80), Wait(90)]);
    assert!(words(&world).iter().any(|word| word.contains("run 1")), "{:?}", words(&world));
}

/// The mean rows of the later batches at an engine that takes 20 ms and a quarter for each row and refuses batches with a bad
/// row. So many queries in a hundred are bad, and 200 always wait.
fn rows_with(world: &mut World, mut ids: Range<u64>, bad: u64) -> f64 {
    let is_bad = |row: &QueryId| (row.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40 & 0xffff) < bad * 655;
    let waits = |world: &World| world.queries.values().filter(|of| of.fate == Fate::Waiting).count();
    let mut sizes = Vec::new();
    loop {
        while waits(world) < 200
            && let Some(id) = ids.next()
        {
            act(world, &Within(id, 600_000));
        }
        let Some((job, rows)) = world.running().next().map(|(id, held)| (*id, held.rows.clone())) else {
            break;
        };
        sizes.push(rows.len());
        act(world, &Wait(20 + rows.len() as u64 / 4));
        let refused = rows.iter().any(is_bad);
        world.send(if refused { Event::JobFailed(job, Failure::Query) } else { Event::JobCompleted(job) });
        world.queries.retain(|_, tracked| tracked.fate == Fate::Waiting);
    }
    let later = &sizes[sizes.len() / 2..];
    later.iter().sum::<usize>() as f64 / later.len() as f64
}

#[test]
fn bad_rows_do_not_end_the_batches_of_others() {
    let mut world = play(PoolSettings { policy: PolicyKind::Hedge, ..auto() }, &[Join(1)]);
    for id in 0..10 {
        [Within(id, 60_000), Wait(20), Done(1)].iter().for_each(|step| act(&mut world, step));
    }
    let before = rows_with(&mut world, 100..8100, 0);
    rows_with(&mut world, 10_000..14_000, 5);
    let after = rows_with(&mut world, 20_000..28_000, 0);
    assert!(after > before / 2.0, "{after} rows, {before} before");
}
