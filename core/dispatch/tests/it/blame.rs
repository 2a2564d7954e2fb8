//! Blame for failures: an instance, a model on one instance, or the query.

use std::num::{NonZeroU8, NonZeroU16};
use std::time::Duration;

use parm_dispatch::{
    Accept, Event, Failure, InstanceId, InstanceSpec, PoolId, QueryId, QuerySpec, Served, Settings, ShapeId,
    Site,
};
use parm_settings::{
    BatchSettings, BudgetSettings, EjectionSettings, Fraction, Placement, PolicyKind, PoolSettings,
};

use super::script::Step::*;
use super::script::{Step, act, check, one_by_one, play, words};
use super::world::{POOL, World};

fn plain() -> PoolSettings {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    PoolSettings { policy: PolicyKind::None, ejection, ..one_by_one() }
}

fn in_service(world: &World, instances: u32) -> Vec<u32> {
    (1..=instances).filter(|id| world.dispatcher.in_service(InstanceId(*id))).collect()
}

#[test]
fn a_query_that_breaks_the_model_at_two_instances_is_at_fault() {
    let steps = [Join(1), Join(2), Join(3), Query(1), Break(1), Break(2)];
    check(plain(), &steps, &["0 run 1 on 1", "0 run 1 on 2", "0 answer 1 BadQuery"]);
}

#[test]
fn queries_that_break_the_model_everywhere_take_no_instance_out() {
    let broken = |id| [Query(id), Break(1), Break(2)];
    let steps: Vec<Step> = (0..10).flat_map(broken).collect();
    let world = play(plain(), &[&[Join(1), Join(2)], &steps[..]].concat());
    assert_eq!(in_service(&world, 2), [1, 2], "{:?}", words(&world));
}

#[test]
fn instance_is_readmitted_when_its_queries_were_at_fault() {
    // Three queries fail on 1, and 3 answers the first of them. The fault of the others is not known yet.
    let first = [Join(1), Join(2), Join(3), Query(1), Query(8), Query(9), Break(1), Done(3)];
    let more = [Query(2), Break(1), Done(3), Query(3), Break(1)];
    let ejected = [&first[..], &more].concat();
    assert_eq!(in_service(&play(plain(), &ejected), 3), [2, 3]);
    let known = [Break(3)];
    assert_eq!(in_service(&play(plain(), &[&ejected[..], &known].concat()), 3), [1, 2, 3]);
}

#[test]
fn instance_is_ejected_when_another_answers_a_failed_query() {
    let failed = [Join(1), Join(2), Query(1), Query(9), Break(1), Query(2), Break(1), Query(3), Break(1)];
    assert_eq!(in_service(&play(plain(), &failed), 2), [1, 2], "they may be at fault");
    let answered = [Done(2), Done(2)];
    assert_eq!(in_service(&play(plain(), &[&failed[..], &answered].concat()), 2), [2]);
}

#[test]
fn instance_that_fails_queries_tried_once_is_ejected() {
    let settings = PoolSettings { policy: PolicyKind::Once, ..plain() };
    let failed = [Join(1), Join(2), Query(1), Query(9), Break(1), Query(2), Break(1), Query(3), Break(1)];
    assert_eq!(in_service(&play(settings.clone(), &failed), 2), [1, 2], "they may be at fault");
    let answered = [&failed[..], &[Done(2)]].concat();
    assert_eq!(in_service(&play(settings, &answered), 2), [2], "2 answers");
}

#[test]
fn success_of_a_smaller_batch_proves_nothing() {
    let batch = BatchSettings {
        max_size: NonZeroU16::new(2).expect("positive").into(),
        max_delay: Duration::from_millis(5),
    };
    let settings = PoolSettings { batch, ..plain() };
    // Three batches fail on 1 while 2 is busy, and 2 answers their remaining queries.
    let after = |one_goes: bool| {
        let mut steps = vec![Join(2), Alone(100), Join(1)];
        for id in [10, 20, 30] {
            steps.extend([Query(id), Query(id + 1), Break(1)]);
            steps.extend(one_goes.then_some(Cancel(id)));
        }
        steps.extend([Done(2), Done(2), Done(2), Done(2)]);
        in_service(&play(settings.clone(), &steps), 2)
    };
    assert_eq!(after(false), [2]);
    assert_eq!(after(true), [1, 2], "whose client went away may have been at fault");
}

#[test]
fn an_instance_stays_while_its_model_answers_nowhere_else() {
    // Queries break the model on 1, and 2 hangs with the first of them.
    let breaks = |id| [Query(id), Break(1)];
    let steps: Vec<Step> = (1..=5).flat_map(breaks).collect();
    let again = [Wait(150), Break(1), Break(1), Break(1)];
    let world = play(plain(), &[&[Join(1), Join(2)], &steps[..], &again].concat());
    assert_eq!(in_service(&world, 2), [1, 2], "{:?}", words(&world));
}

#[test]
fn poison_queries_keep_retry_budget_next_to_hung_instance() {
    let settings = PoolSettings {
        retry: BudgetSettings { ratio: Fraction::percent(0), burst: 3 },
        retry_elsewhere: Duration::from_millis(20),
        ..plain()
    };
    // Instance 2 hangs with query 1. Then four queries in a row break the model twice each on instance 1.
    let poison = |id| [Query(id), Break(1), Wait(20), Break(1)];
    let start = [Join(1), Join(2), Query(1), Query(9), Done(1), Wait(100)];
    let steps: Vec<Step> = start.into_iter().chain((2..=5).flat_map(poison)).collect();
    let world = play(settings, &steps);
    let answers = words(&world).into_iter().filter(|line| line.contains("answer") && !line.contains('9'));
    let rejected = answers.filter(|line| line.contains("BadQuery")).count();
    assert_eq!(rejected, 4, "{:#?}", words(&world));
}

#[test]
fn own_failure_does_not_confirm_suspected_failures() {
    // Queries break the model on 1 again and again while 2 hangs with the first of them; then 1 is busy once.
    let breaks = |id| [Query(id), Break(1)];
    let steps: Vec<Step> = (1..=5).flat_map(breaks).chain([Query(6), Fail(1)]).collect();
    let world = play(plain(), &[&[Join(1), Join(2)], &steps[..]].concat());
    assert_eq!(in_service(&world, 2), [1, 2], "{:?}", words(&world));
}

#[test]
fn backup_instance_is_ejected_only_for_failures_in_a_row() {
    let settings = PoolSettings { policy: PolicyKind::ApproximateBackup, ..plain() };
    // 2 of the two is kept for backups.
    let outcome = |between: bool| {
        let mut steps = vec![Join(1), Join(2)];
        for id in [1, 3, 5] {
            steps.extend([Query(id), Fail(2), Done(1)]);
            steps.extend(if between { vec![Query(id + 1), Done(2), Done(1)] } else { vec![] });
        }
        let world = play(settings.clone(), &[&steps[..], &[Quiet, Query(9)]].concat());
        words(&world).len()
    };
    assert_eq!([true, false].map(outcome), [2, 1], "a query and its backup, or the query alone");
}

#[test]
fn hung_instance_is_ejected_only_from_replicated_pools() {
    let mut world = World::new(Settings::uniform(plain()), 7);
    let joins = |world: &mut World, id, pools: &[u32]| {
        let serves = pools.iter().map(|pool| Served::deployed(PoolId(*pool))).collect();
        world.send(Event::InstanceJoined(
            InstanceId(id),
            InstanceSpec { serves, slots: 1, site: Site::default(), learns: false },
        ));
    };
    joins(&mut world, 1, &[0]);
    act(&mut world, &Warm(32));
    joins(&mut world, 2, &[0, 1]);
    // The clients of 2's queries cancel in turn, and its probe is not answered.
    for id in [11, 13] {
        [Query(id), Query(id + 1), Done(1), Wait(100), Cancel(id), Cancel(id + 1), Fail(2)]
            .iter()
            .for_each(|step| act(&mut world, step));
    }
    act(&mut world, &Probe(2, false));
    let takes = [0, 1].map(|pool| world.dispatcher.takes(InstanceId(2), PoolId(pool)));
    assert_eq!(takes, [false, true], "{:?}", words(&world));
}

#[test]
fn query_counts_once_when_it_fails_repeatedly() {
    let settings = PoolSettings { max_attempts: NonZeroU8::new(5).expect("positive"), ..plain() };
    // 2 answers what 1 failed and hangs with the next; 1 tries another query over and over.
    let first = [Join(1), Join(2), Query(1), Query(2), Break(1), Done(2), Done(2), Quiet];
    let alone = [Query(3), Query(4), Break(1), Wait(150), Break(1), Wait(150), Break(1)];
    let world = play(settings, &[&first[..], &alone].concat());
    assert_eq!(in_service(&world, 2), [1, 2], "{:?}", words(&world));
}

#[test]
fn retries_of_queries_at_fault_are_returned_to_the_budget() {
    let retry = BudgetSettings { ratio: Fraction::percent(0), burst: 2 };
    let settings = PoolSettings { retry, ..plain() };
    let broken = |id| [Query(id), Break(1), Break(2)];
    let steps: Vec<Step> = (0..10).flat_map(broken).collect();
    let world = play(settings, &[&[Join(1), Join(2)], &steps[..]].concat());
    let counters = world.dispatcher.status(POOL).expect("it is there").counters;
    assert_eq!((counters.retries, counters.retries_refused), (10, 0), "{:?}", words(&world));
}

#[test]
fn query_failing_twice_on_the_only_instance_is_rejected() {
    let batch =
        BatchSettings { max_size: NonZeroU16::new(2).expect("positive").into(), max_delay: Duration::ZERO };
    let retry = BudgetSettings { ratio: Fraction::percent(0), burst: 2 };
    let max_attempts = NonZeroU8::new(5).expect("positive");
    // The policy `parm` keeps one of two instances for parities.
    let settings = PoolSettings { policy: PolicyKind::Parm, batch, retry, max_attempts, ..plain() };
    let broken = |id| [Query(id), Break(1), Break(1)];
    let mut steps = vec![Join(1), Join(2)];
    steps.extend((0..10).flat_map(broken));
    // While 1 is busy another one arrives with a batch mate, which is retried.
    steps.extend([Quiet, Alone(50), Query(51), Query(52), Done(1), Break(1), Break(1), Break(1), Done(1)]);
    check(
        settings,
        &steps,
        &[
            "0 run 50 on 1",
            "0 answer 50 exact",
            "0 run 51+52 on 1",
            "0 run 51+52 on 1",
            "0 run 51 on 1",
            "0 answer 51 BadQuery",
            "0 run 52 on 1",
            "0 answer 52 exact",
        ],
    );
}

#[test]
fn query_failing_twice_is_retried_while_others_may_answer() {
    // 2 is busy, and comes free when the query has failed at 1 twice.
    let steps = [Join(1), Join(2), Query(1), Query(2), Break(1), Wait(150), Break(1), Done(2), Done(2)];
    check(
        plain(),
        &steps,
        &[
            "0 run 1 on 1",
            "0 run 2 on 2",
            "100 run 1 on 1",
            "150 answer 2 exact",
            "150 run 1 on 2",
            "150 answer 1 exact",
        ],
    );
}

#[test]
fn unused_model_does_not_keep_a_slow_instance() {
    // Placed by speed, no query would go there.
    let settings = PoolSettings { placement: Placement::Turns, ..plain() };
    let mut world = World::new(Settings::uniform(settings), 7);
    let pools = [PoolId(0), PoolId(1)];
    let mut ids = 0..;
    for id in 1..=3 {
        let serves = pools.map(Served::deployed).to_vec();
        world.send(Event::InstanceJoined(
            InstanceId(id),
            InstanceSpec { serves, slots: 1, site: Site::default(), learns: false },
        ));
    }
    // Instance 1 takes five times as long as the others, and the second model has no queries.
    for _ in 0..30 {
        let deadline = world.now + Duration::from_secs(1);
        let (shape, priority, accept) = (ShapeId(0), 0, Accept::Any);
        let id = QueryId(ids.next().expect("numbers do not end"));
        let pool = pools[0];
        world.send(Event::QueryArrived(QuerySpec {
            id,
            pool,
            shape,
            deadline,
            priority,
            share: None,
            accept,
            codable: true,
            size: 1,
            padded: false,
        }));
        let (job, on) = world.running().map(|(id, held)| (*id, held.job.instance)).last().expect("it runs");
        world.advance(Duration::from_millis(if on == InstanceId(1) { 100 } else { 20 }));
        world.send(Event::JobCompleted(job));
    }
    assert_eq!(in_service(&world, 3), [2, 3], "{:?}", words(&world));
}

#[test]
fn mates_of_a_query_that_breaks_the_model_are_answered() {
    let batch = BatchSettings {
        max_size: NonZeroU16::new(2).expect("positive").into(),
        max_delay: Duration::from_millis(5),
    };
    let settings = PoolSettings { batch, ..plain() };
    let steps = [Join(1), Join(2), Join(3), Query(1), Query(2), Break(1), Break(2), Break(3), Done(1)];
    check(
        settings,
        &steps,
        &[
            "0 run 1+2 on 1",
            "0 run 1+2 on 2",
            "0 run 1 on 3",
            "0 run 2 on 1",
            "0 answer 1 BadQuery",
            "0 answer 2 exact",
        ],
    );
}

#[test]
fn batch_mates_are_answered_by_the_only_instance() {
    let batch = BatchSettings {
        max_size: NonZeroU16::new(2).expect("positive").into(),
        max_delay: Duration::from_millis(5),
    };
    let alone = [Join(1), Query(1), Query(2), Break(1), Break(1), Break(1), Done(1)];
    let words = ["0 run 1+2 on 1", "0 run 1+2 on 1", "0 run 1 on 1", "0 answer 1 BadQuery", "0 run 2 on 1"];
    let settings = PoolSettings { batch, ..plain() };
    check(settings.clone(), &alone, &[&words[..], &["0 answer 2 exact"]].concat());
    let few = PoolSettings { max_attempts: NonZeroU8::new(2).expect("positive"), ..settings };
    let two = [Join(1), Join(2), Query(1), Query(2), Break(1), Break(2), Break(1), Done(1)];
    let words = ["0 run 1+2 on 1", "0 run 1+2 on 2", "0 run 1 on 1", "0 answer 1 BadQuery", "0 run 2 on 1"];
    check(few, &two, &[&words[..], &["0 answer 2 exact"]].concat());
}

#[test]
fn instance_is_ejected_when_its_only_model_fails() {
    let mut steps = vec![Join(1), Join(2)];
    for id in 0..3 {
        steps.extend([Query(2 * id), Query(2 * id + 1), Break(1), Done(2), Done(2)]);
    }
    let world = play(plain(), &steps);
    assert_eq!(in_service(&world, 2), [2], "{:?}", words(&world));
}

#[test]
fn a_least_share_is_kept_however_often_it_fails() {
    let fail = |share| {
        let ejection = EjectionSettings { least_in_service: Fraction::percent(share), ..plain().ejection };
        let settings = PoolSettings { ejection, max_attempts: NonZeroU8::MIN, ..plain() };
        let mut steps: Vec<Step> = (1..=10).map(Join).collect();
        for round in 0..3 {
            steps.extend((0..10).map(|id| Query(100 * round + id)));
            steps.extend((1..=10).map(Fail));
        }
        in_service(&play(settings, &steps), 10).len()
    };
    assert_eq!([0, 30, 55, 100].map(fail), [0, 3, 6, 10]);
}

#[test]
fn the_only_instance_of_a_model_is_never_taken_out_for_failures() {
    let settings = PoolSettings { max_attempts: NonZeroU8::MIN, ..plain() };
    let steps: Vec<Step> = (1..=9).flat_map(|id| [Query(id), Fail(1)]).collect();
    let world = play(settings, &[&[Join(1)], &steps[..]].concat());
    assert_eq!(in_service(&world, 1), [1]);
}

#[test]
fn failing_model_is_ejected_and_other_models_stay() {
    let mut world = World::new(Settings::uniform(plain()), 7);
    let pools = [PoolId(0), PoolId(1)];
    for id in 1..=2 {
        let serves = pools.map(Served::deployed).to_vec();
        world.send(Event::InstanceJoined(
            InstanceId(id),
            InstanceSpec { serves, slots: 1, site: Site::default(), learns: false },
        ));
    }
    let ask = |world: &mut World, pool| {
        let last = world.queries.len() as u64 + 1;
        assert!(last < 100, "it is never taken out");
        let (id, deadline) = (QueryId(last), world.now + Duration::from_secs(1));
        let (shape, priority, accept) = (ShapeId(0), 0, Accept::Any);
        let query = QuerySpec {
            id,
            pool,
            shape,
            deadline,
            priority,
            share: None,
            accept,
            codable: true,
            size: 1,
            padded: false,
        };
        world.send(Event::QueryArrived(query));
        let (job, on) = world.running().map(|(id, held)| (*id, held.job.instance)).last().expect("it runs");
        (job, on)
    };
    // On instance 1 the second model breaks, and the first one works in between.
    while world.dispatcher.takes(InstanceId(1), pools[1]) {
        let (job, _) = ask(&mut world, pools[0]);
        world.send(Event::JobCompleted(job));
        let (job, on) = ask(&mut world, pools[1]);
        if on == InstanceId(1) {
            world.send(Event::JobFailed(job, Failure::Model));
            let (job, _) =
                world.running().last().map(|(id, held)| (*id, held.job.instance)).expect("a retry");
            world.send(Event::JobCompleted(job));
        } else {
            world.send(Event::JobCompleted(job));
        }
    }
    assert!(world.dispatcher.takes(InstanceId(1), pools[0]) && world.dispatcher.in_service(InstanceId(1)));
    world.advance(Duration::from_secs(1));
    assert_eq!(world.probes.iter().copied().collect::<Vec<_>>(), [(InstanceId(1), Some(pools[1]))]);
    world.send(Event::ProbeAnswered(InstanceId(1), Some(pools[1]), true));
    assert!(world.dispatcher.takes(InstanceId(1), pools[1]));
}

#[test]
fn jobs_that_were_given_up_late_make_an_instance_slow() {
    let given_up = |answers, after| {
        let mut steps = vec![Join(1), Warm(answers), Join(2), Quiet];
        for round in 0..2 {
            let (id, other) = (10 * round, 10 * round + 1);
            steps.extend([Query(id), Query(other), Done(1), Wait(after), Cancel(id), Cancel(other), Fail(2)]);
        }
        let world = play(plain(), &steps);
        assert_eq!(world.dispatcher.status(POOL).expect("it is there").counters.retries, 0);
        in_service(&world, 2)
    };
    assert_eq!(given_up(32, 100), [1], "it hangs: twice five medians without an answer");
    assert_eq!(given_up(32, 50), [1, 2], "clients may be impatient");
    assert_eq!(given_up(4, 100), [1], "a rarely used model is evidence too");
    assert_eq!(given_up(1, 100), [1, 2], "one answer is not enough for a usual time");
}

#[test]
fn hung_instance_is_ejected_when_busy_and_slow_one_stays() {
    let answered = |works| {
        let mut steps = vec![Join(1), Warm(32), Join(2), Query(1), Query(2), Done(1), Wait(100)];
        // The queue is so long that every instance counts when the client of 2's query cancels.
        steps.extend((3..9).map(Query));
        steps.extend([Cancel(1), Cancel(2), Fail(2)]);
        steps.extend([Done(1), Done(1), Done(1), Done(1), Done(1), Wait(100)]);
        steps.extend((11..17).map(Query));
        steps.extend([Cancel(4), Fail(2)]);
        assert_eq!(in_service(&play(plain(), &steps), 2), [1, 2]);
        steps.push(Probe(2, works));
        in_service(&play(plain(), &steps), 2)
    };
    assert_eq!(answered(false), [1], "it hangs");
    assert_eq!(answered(true), [1, 2]);
}

#[test]
fn possibly_hung_instance_is_recalled_only_after_its_probe() {
    // 2 returns nothing twice and is ejected, as no query waits.
    let mut steps = vec![Join(1), Warm(32), Join(2), Quiet];
    for id in [1, 3] {
        steps.extend([Query(id), Query(id + 1), Done(1), Wait(100), Cancel(id), Cancel(id + 1), Fail(2)]);
    }
    assert_eq!(in_service(&play(plain(), &steps), 2), [1]);
    // Then a queue builds up, so it is recalled and probed; it returns nothing again.
    steps.extend((11..17).map(Query));
    assert_eq!(in_service(&play(plain(), &steps), 2), [1, 2], "all evidence shows a slow instance");
    steps.extend((11..17).map(Cancel));
    steps.extend([Done(1), Wait(100), Fail(2)]);
    assert_eq!(in_service(&play(plain(), &steps), 2), [1]);
    steps.extend((21..27).map(Query));
    assert_eq!(in_service(&play(plain(), &steps), 2), [1], "its probe has no answer");
    steps.extend([Probe(2, true), Query(27)]);
    assert_eq!(in_service(&play(plain(), &steps), 2), [1, 2], "it answers its probe, so it is only slow");
}

#[test]
fn joining_instance_gets_overflow_only_during_slow_start() {
    let ejection = EjectionSettings { slow_start: Duration::from_millis(500), ..EjectionSettings::default() };
    let settings = PoolSettings { ejection, ..plain() };
    let warming =
        [Join(1), Warm(32), Join(2), Quiet, Query(1), Done(1), Query(2), Query(3), Done(2), Done(1)];
    let later = [Wait(500), Quiet, Query(4), Query(5)];
    check(
        settings.clone(),
        &warming,
        &[
            "640 run 1 on 1",
            "640 answer 1 exact",
            "640 run 2 on 1",
            "640 run 3 on 2",
            "640 answer 3 exact",
            "640 answer 2 exact",
        ],
    );
    check(settings.clone(), &[&warming[..], &later].concat(), &["1140 run 4 on 2", "1140 run 5 on 1"]);
    // Slow start needs a known service time.
    check(
        settings,
        &[Join(1), Join(2), Query(1), Done(1), Query(2)],
        &["0 run 1 on 1", "0 answer 1 exact", "0 run 2 on 2"],
    );
}
