//! Stand-in jobs of several rows: each query has one row, and its outputs are released.

use std::time::Duration;

use parm_dispatch::{Event, Judgement, Role};
use parm_settings::{BatchSettings, BatchSize, BudgetSettings, Fraction, PolicyKind, PoolSettings};

use proptest::prelude::*;

use super::schedule::{answer_driver, cases};
use super::script::Step::{self, *};
use super::script::{act, check, one_by_one, play, words};
use super::world::World;

/// Two rows cost little more than one. The late budget is spent, so queries 2 and 3 get no late stand-in and wait
/// for an idle instance: instance 5 takes both.
const ONE_JOB: [Step; 15] = [
    Cost([25, 27, 30, 40]),
    Join(1),
    Warm(32),
    Join(2),
    Join(3),
    Quiet,
    Query(1),
    Query(2),
    Query(3),
    Wait(24),
    Done(3),
    Quiet,
    Join(4),
    Join(5),
    Wait(1),
];

fn without_late_budget() -> PoolSettings {
    let mut settings = PoolSettings { policy: PolicyKind::StandIn, ..one_by_one() };
    settings.ejection.slow_start = Duration::ZERO;
    settings.stand_in.late_budget = BudgetSettings { ratio: Fraction::percent(0), burst: 0 };
    settings.stand_in.hedge = false;
    settings
}

fn go_on(steps: &[Step]) -> World {
    let mut world = play(without_late_budget(), &ONE_JOB);
    world.log.clear();
    steps.iter().for_each(|step| act(&mut world, step));
    world
}

#[test]
fn stand_in_job_has_each_query_once_when_late_one_is_refused() {
    check(without_late_budget(), &ONE_JOB, &["664 stand-in 3+2 on 5"]);
}

#[test]
fn stand_in_outputs_are_released_when_queries_are_answered() {
    let mut world = go_on(&[Done(5), Judged(Some(90)), Judged(Some(90)), Judged(Some(90)), Wait(1)]);
    let answers: Vec<_> = words(&world).into_iter().filter(|word| word.contains("answer")).collect();
    assert_eq!(answers, ["665 answer 1 stand-in", "665 answer 2 stand-in", "665 answer 3 stand-in"]);
    world.finish();
    let held = world.dispatcher.held();
    assert_eq!((held.queries, held.jobs, held.groups), (0, 0, 0), "{held:?}");
}

#[test]
fn stand_in_job_is_dropped_when_all_its_queries_are_cancelled() {
    let mut world = go_on(&[Cancel(2), Cancel(3)]);
    assert_eq!(words(&world), ["665 drop 2 on 1", "665 drop 3 on 3", "665 drop 3+2 on 5"]);
    world.finish();
}

#[test]
fn stand_in_job_goes_on_when_one_of_its_queries_is_cancelled() {
    let mut world = go_on(&[Cancel(3), Done(5), Wait(1)]);
    assert_eq!(words(&world), ["665 drop 3 on 3", "665 judge 2"]);
    world.finish();
}

/// A step of a schedule in which queries run late and instances come free.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Arrive(u64),
    /// A query comes whose client takes predictions only.
    ArriveExact,
    Wait(u64),
    /// The running job at this place ends.
    End(usize),
    Join,
    /// All instances leave.
    Desert,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        3 => (1..5u64).prop_map(Turn::Arrive),
        3 => (1..60u64).prop_map(Turn::Wait),
        4 => any::<usize>().prop_map(Turn::End),
        1 => Just(Turn::ArriveExact),
        2 => Just(Turn::Join),
        1 => Just(Turn::Desert),
    ]
}

proptest! {
    #![proptest_config(cases(64))]

    /// The world checks the rows of every job, and `finish` that all outputs are released.
    #[test]
    fn rows_are_distinct_and_released_whatever_is_refused(
        turns in prop::collection::vec(turn(), 10..80), burst in 0..4u32, cost in (20..60u16, 0..30u16),
    ) {
        let mut settings = without_late_budget();
        settings.stand_in.late_budget = BudgetSettings { ratio: Fraction::percent(5), burst };
        settings.no_instance_grace = Duration::from_millis(50);
        let (row, more) = cost;
        let costs = Cost([row, row + more, row + 3 * more, row + 7 * more]);
        let mut world = play(settings, &[costs, Join(1), Warm(32), Join(2), Join(3)]);
        let (mut query, mut instance) = (0, 3);
        for turn in turns {
            match turn {
                Turn::Arrive(count) => (0..count).for_each(|_| {
                    query += 1;
                    act(&mut world, &Query(query));
                }),
                Turn::ArriveExact => {
                    query += 1;
                    act(&mut world, &Exact(query));
                }
                Turn::Desert => {
                    let present: Vec<_> = world.instances.keys().copied().collect();
                    present.into_iter().for_each(|id| world.send(Event::InstanceLeft(id)));
                }
                Turn::Wait(time) => world.advance(Duration::from_millis(time)),
                Turn::Join => {
                    instance += 1;
                    act(&mut world, &Join(instance));
                }
                Turn::End(which) => {
                    let running: Vec<_> = world.running().map(|(id, _)| *id).collect();
                    if let Some(at) = which.checked_rem(running.len()) {
                        world.send(Event::JobCompleted(running[at]));
                    }
                }
            }
            answer_driver(&mut world, Judgement::Fit(Some(0.9)));
        }
        world.finish();
    }
}

/// The rows of the next batch of two waiting queries, after three stand-in jobs of two rows that ended so.
fn next_batch_after(end: fn(u32) -> Step) -> usize {
    let mut world = play(without_late_budget(), &ONE_JOB[..5]);
    let stand_in = |world: &World, rows| {
        let is = |role| matches!(role, Role::StandIn(_));
        let job = world.running().find(|(_, held)| is(held.job.role) && held.rows.len() == rows);
        job.expect("a stand-in job runs").1.job.instance.0
    };
    for round in 0..3 {
        let queries = [1, 2, 3].map(|id| Query(10 * round + id));
        queries.iter().chain(&[Wait(24)]).for_each(|step| act(&mut world, step));
        let first = stand_in(&world, 1);
        [Done(first), Join(4), Join(5), Wait(1)].iter().for_each(|step| act(&mut world, step));
        let both = stand_in(&world, 2);
        act(&mut world, &end(both));
        while let Some(busy) = world.running().map(|(_, held)| held.job.instance.0).min() {
            act(&mut world, &Done(busy));
        }
        [Leave(4), Leave(5)].iter().for_each(|step| act(&mut world, step));
    }
    let batch = BatchSettings { max_size: BatchSize::Auto, ..BatchSettings::default() };
    let auto = PoolSettings { policy: PolicyKind::None, batch, ..PoolSettings::default() };
    let steps =
        [Leave(2), Leave(3), Settings(auto.into()), Query(101), Query(102), Query(103), Wait(20), Done(1)];
    steps.iter().for_each(|step| act(&mut world, step));
    world.running().next().expect("the others wait").1.rows.len()
}

#[test]
fn refused_stand_ins_do_not_limit_batches() {
    assert_eq!(next_batch_after(Fail), 2);
    assert_eq!(next_batch_after(Refuse), 2);
}
