//! Batches of queries of several sizes, which the driver pads.

use std::num::NonZeroU16;
use std::time::Duration;

use parm_settings::{BatchSettings, BatchSize, PolicyKind, PoolSettings};

use super::script::Step::{Done, Join, Padded};
use super::script::{act, play, words};
use super::world::World;

fn settings(max_size: BatchSize, policy: PolicyKind) -> PoolSettings {
    let batch = BatchSettings { max_size, ..BatchSettings::default() };
    PoolSettings { policy, batch, ..PoolSettings::default() }
}

fn eight() -> BatchSize {
    NonZeroU16::new(8).unwrap().into()
}

/// A pool with an instance that takes so many microseconds for a run of a padded size, after 64 single queries of several
/// sizes.
fn learned(max_size: BatchSize, micros: fn(u64) -> u64) -> World {
    let mut world = play(settings(max_size, PolicyKind::None), &[Join(1)]);
    for id in 0..64 {
        let size = 1 + (id * 7 % 40) as u32;
        act(&mut world, &Padded(id, size));
        run(&mut world, micros(size.into()));
    }
    world
}

/// The job of the instance takes so long.
fn run(world: &mut World, micros: u64) {
    world.advance(Duration::from_micros(micros));
    act(world, &Done(1));
}

/// The batches of queries of these sizes, numbered from 100, that arrive while the instance is busy.
fn batches(mut world: World, micros: fn(u64) -> u64, sizes: &[u32]) -> Vec<Vec<u64>> {
    act(&mut world, &Padded(99, 10));
    sizes.iter().zip(100..).for_each(|(size, id)| act(&mut world, &Padded(id, *size)));
    run(&mut world, micros(10));
    let mut batches = Vec::new();
    loop {
        let running = world.running().next().map(|(_, held)| held.rows.iter().map(|query| query.0).collect());
        let Some::<Vec<u64>>(rows) = running else { break };
        let longest = rows.iter().map(|id| sizes[*id as usize - 100]).max().unwrap_or_default();
        run(&mut world, micros(rows.len() as u64 * u64::from(longest)));
        batches.push(rows);
    }
    batches
}

/// A run costs as much as 20 units of size.
fn overhead(units: u64) -> u64 {
    2000 + 100 * units
}

#[test]
fn short_rows_are_not_batched_with_long_ones() {
    let sizes = [10, 300, 12, 11, 290, 9];
    let made = batches(learned(eight(), overhead), overhead, &sizes);
    assert_eq!(made, [vec![100, 103, 105, 102], vec![101, 104]]);
}

#[test]
fn rows_of_all_lengths_share_a_run_that_costs_the_same() {
    let made = batches(learned(eight(), |_| 5000), |_| 5000, &[10, 300, 12, 40]);
    assert_eq!(made, [vec![100, 102, 103, 101]], "the nearest first");
}

#[test]
fn padded_rows_run_apart_if_a_run_costs_nothing() {
    let made = batches(learned(eight(), |units| 100 * units), |units| 100 * units, &[10, 30, 10, 30]);
    assert_eq!(made, [[100, 102], [101, 103]]);
}

#[test]
fn only_similar_rows_share_a_batch_of_unknown_cost() {
    let world = play(settings(eight(), PolicyKind::None), &[Join(1)]);
    assert_eq!(batches(world, overhead, &[20, 40, 21]), [vec![100, 102], vec![101]]);
}

#[test]
fn oldest_query_of_an_unusual_length_is_not_passed_over() {
    let mut sizes = vec![300];
    sizes.extend([10; 40]);
    let made = batches(learned(eight(), overhead), overhead, &sizes);
    assert_eq!((made[0].as_slice(), made[1].len()), (&[100][..], 8));
}

#[test]
fn automatic_batches_hold_rows_of_similar_lengths() {
    let sizes: Vec<u32> = (0..600).map(|at| if at % 2 == 0 { 10 + at % 3 } else { 300 }).collect();
    let made = batches(learned(BatchSize::Auto, overhead), overhead, &sizes);
    let long = |id: &u64| sizes[*id as usize - 100] == 300;
    assert!(made.iter().all(|batch| batch.iter().all(long) || !batch.iter().any(long)), "{made:?}");
    assert!(made.iter().any(|batch| batch.len() >= 8), "{made:?}");
}

#[test]
fn padded_queries_join_no_coding_group() {
    let coded = settings(BatchSize::ONE, PolicyKind::Parm);
    let world = play(coded, &[Join(1), Join(2), Join(3), Padded(1, 10), Padded(2, 10)]);
    assert_eq!(words(&world), ["0 run 1 on 1", "0 run 2 on 2"]);
}

#[test]
fn backup_of_a_batch_runs_each_length_apart() {
    let mut world = play(settings(eight(), PolicyKind::ApproximateBackup), &[Join(1)]);
    act(&mut world, &Padded(99, 10));
    [(1, 20), (2, 21), (3, 20)].into_iter().for_each(|(id, size)| act(&mut world, &Padded(id, size)));
    act(&mut world, &Done(1));
    [Join(2), Join(3)].iter().for_each(|step| act(&mut world, step));
    let backups: Vec<_> = words(&world).into_iter().filter(|word| word.contains("backup")).collect();
    assert!(backups.iter().any(|word| word.contains("backup 1+3 ")), "{backups:?}");
}
