//! Approximate answers that are in or being made when the last attempt of their query fails, its deadline is near, or no
//! instance is left.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_dispatch::{Event, Failure, JobId, Role};
use parm_settings::{BudgetSettings, EjectionSettings, Fraction, PolicyKind, PoolSettings};

use super::coded::plus;
use super::script::Step::{
    self, Cost, Done, Encoded, Fail, Join, JoinApart, Leave, Query, Quiet, Refuse, Unload, Wait, Warm, Within,
};
use super::script::{act, judge, one_by_one, play, words};
use super::world::World;

pub(crate) fn standing() -> PoolSettings {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    PoolSettings { policy: PolicyKind::StandIn, ejection, ..one_by_one() }
}

fn one_attempt(settings: PoolSettings) -> PoolSettings {
    PoolSettings { max_attempts: NonZeroU8::MIN, ..settings }
}

fn job(world: &World, is_one: fn(Role) -> bool) -> JobId {
    *world.running().find(|(_, held)| is_one(held.job.role)).expect("it runs").0
}

#[test]
fn answer_of_a_stand_in_is_given_when_the_last_attempt_fails() {
    let settings = one_attempt(standing());
    let joins = [Join(2), Join(3), Join(4)];
    let steps =
        [&[Cost([25, 50, 100, 200]), Join(1), Warm(80)], &joins[..], &[Quiet, Query(1), Wait(5)]].concat();
    let mut world = play(settings, &steps);
    // The spare stand-in ends first.
    let stand_in = job(&world, |role| matches!(role, Role::StandIn(_)));
    world.send(Event::JobCompleted(stand_in));
    let own = job(&world, |role| role == Role::Deployed);
    world.send(Event::JobFailed(own, Failure::Instance));
    judge(&mut world);
    act(&mut world, &Wait(1));
    let words = words(&world);
    assert!(words.iter().any(|word| word.ends_with("answer 1 stand-in")), "{words:?}");
}

#[test]
fn reconstruction_is_given_when_no_retry_is_left() {
    let mut settings = plus(2, 1);
    settings.policy = PolicyKind::ParmPlus;
    settings.retry = BudgetSettings { ratio: Fraction::percent(0), burst: 0 };
    settings.coding.grace.cold = Duration::from_millis(25);
    let joins = [Join(1), Join(2), Join(3), Quiet];
    let fails = [Query(1), Query(2), Encoded, Wait(5), Done(3), Done(1), Fail(2), Wait(1)];
    let words = words(&play(settings, &[&joins[..], &fails].concat()));
    assert!(words.iter().any(|word| word.contains("decode")), "{words:?}");
}

/// A stand-in is in after 5 ms, its query has a deadline of 22 ms, runs take 20 ms, and this one hangs.
#[test]
fn stand_in_that_is_in_is_given_before_the_deadline() {
    let joins = [Join(2), Join(3), Join(4)];
    let steps =
        [&[Cost([25, 50, 100, 200]), Join(1), Warm(80)], &joins[..], &[Quiet, Within(1, 22), Wait(5)]]
            .concat();
    let mut world = play(standing(), &steps);
    let stand_in = job(&world, |role| matches!(role, Role::StandIn(_)));
    world.send(Event::JobCompleted(stand_in));
    for _ in 0..30 {
        act(&mut world, &Wait(1));
        judge(&mut world);
    }
    let words = words(&world);
    assert!(words.iter().any(|word| word.ends_with("answer 1 stand-in")), "{words:?}");
}

/// A reconstruction can be made after 5 ms, its query has a deadline of 60 ms.
#[test]
fn reconstruction_is_given_before_the_deadline() {
    let mut settings = plus(2, 1);
    settings.policy = PolicyKind::ParmPlus;
    let joins = [Join(1), Join(2), Join(3), Quiet];
    settings.coding.grace.cold = Duration::from_millis(100);
    let fails = [Query(1), Within(2, 60), Encoded, Wait(5), Done(3), Done(1), Wait(70)];
    let words = words(&play(settings, &[&joins[..], &fails].concat()));
    assert!(words.iter().any(|word| word.contains("decode")), "{words:?}");
}

/// All instances leave while a stand-in's answer is held back; the model takes two seconds.
#[test]
fn stand_in_that_is_in_is_given_when_no_instance_is_left() {
    let mut world = play(standing(), &[Cost([25, 50, 100, 200]), Join(1)]);
    for id in 1..=80u64 {
        act(&mut world, &Within(1_000 + id, 60_000));
        let held: Vec<_> = world.running().map(|(id, _)| *id).collect();
        act(&mut world, &Wait(2000));
        held.into_iter().for_each(|job| world.send(Event::JobCompleted(job)));
    }
    [Join(2), Join(3), Join(4), Quiet, Within(1, 60_000), Wait(500)].iter().for_each(|s| act(&mut world, s));
    let stand_in = job(&world, |role| matches!(role, Role::StandIn(_)));
    world.send(Event::JobCompleted(stand_in));
    act(&mut world, &Wait(100));
    let own =
        world.running().find(|(_, held)| held.job.role == Role::Deployed).expect("it runs").1.job.instance;
    let others = (1..=4).filter(|id| *id != own.0);
    others.for_each(|id| act(&mut world, &Leave(id)));
    act(&mut world, &Leave(own.0));
    for _ in 0..3000 {
        act(&mut world, &Wait(1));
        judge(&mut world);
    }
    let words = words(&world);
    assert!(words.iter().any(|word| word.ends_with("answer 1 stand-in")), "{words:?}");
}

#[test]
fn running_stand_in_answers_when_the_last_attempt_fails() {
    let joins = [Join(2), Join(3), Join(4)];
    let steps =
        [&[Cost([25, 50, 100, 200]), Join(1), Warm(80)], &joins[..], &[Quiet, Query(1), Wait(2)]].concat();
    let mut world = play(one_attempt(standing()), &steps);
    let stand_in = job(&world, |role| matches!(role, Role::StandIn(_)));
    let own = job(&world, |role| role == Role::Deployed);
    world.send(Event::JobFailed(own, Failure::Instance));
    act(&mut world, &Wait(3));
    world.send(Event::JobCompleted(stand_in));
    judge(&mut world);
    act(&mut world, &Wait(1));
    let words = words(&world);
    assert!(words.iter().any(|word| word.ends_with("answer 1 stand-in")), "{words:?}");
}

/// The only attempt of the second query of a group fails while the first query and the parity run.
const UNGROUPED: [Step; 8] = [Join(1), Join(2), Join(3), Query(1), Query(2), Encoded, Wait(5), Fail(2)];

fn grouped() -> PoolSettings {
    one_attempt(PoolSettings { policy: PolicyKind::ParmPlus, ..plus(2, 1) })
}

#[test]
fn running_parity_answers_when_the_last_attempt_fails() {
    let words = words(&play(grouped(), &[&UNGROUPED[..], &[Done(1), Done(3), Wait(1)]].concat()));
    assert!(words.iter().any(|word| word.contains("decode 2")), "{words:?}");
}

#[test]
fn parity_answers_when_the_last_attempt_fails_without_a_retry() {
    let mut settings = PoolSettings { policy: PolicyKind::ParmPlus, ..plus(2, 1) };
    settings.retry = BudgetSettings { ratio: Fraction::percent(0), burst: 0 };
    let words = words(&play(settings, &[&UNGROUPED[..], &[Done(3), Done(1), Wait(1)]].concat()));
    assert!(words.iter().any(|word| word.contains("decode 2")), "{words:?}");
}

#[test]
fn query_is_rejected_as_soon_as_its_group_cannot_answer() {
    for lost in
        [&[Fail(3)][..], &[Leave(3)], &[Fail(1)], &[Done(3), Fail(1)], &[Done(1), Leave(3)], &[Unload]]
    {
        let mut world = play(grouped(), &[&UNGROUPED[..], &[Quiet]].concat());
        assert!(words(&world).is_empty(), "{:?}", words(&world));
        lost.iter().for_each(|step| act(&mut world, step));
        assert!(words(&world).contains(&"5 answer 2 Failed".to_owned()), "{lost:?}: {:?}", words(&world));
        world.finish();
    }
}

/// The only attempt of a query fails while its backup runs.
const BACKED_UP: [Step; 5] = [Join(1), Join(2), Query(1), Wait(2), Fail(1)];

fn backed_up() -> PoolSettings {
    one_attempt(PoolSettings { policy: PolicyKind::ApproximateBackup, ..standing() })
}

#[test]
fn running_backup_answers_when_the_last_attempt_fails() {
    let words = words(&play(backed_up(), &[&BACKED_UP[..], &[Wait(2), Done(2), Wait(1)]].concat()));
    assert!(words.iter().any(|word| word.ends_with("answer 1 backup")), "{words:?}");
}

#[test]
fn query_is_rejected_as_soon_as_its_backup_is_lost() {
    for lost in [Fail(2), Leave(2)] {
        let mut world = play(backed_up(), &[&BACKED_UP[..], &[Quiet]].concat());
        assert!(words(&world).is_empty(), "{:?}", words(&world));
        act(&mut world, &lost);
        assert!(words(&world).contains(&"2 answer 1 Failed".to_owned()), "{lost:?}: {:?}", words(&world));
    }
}

/// No instance with the deployed model is left, and the stand-in of a query takes longer than any wait for an instance.
fn left_to_a_slow_stand_in() -> World {
    let warm = [Cost([25, 50, 100, 200]), Join(1), Warm(80), JoinApart(4), Leave(1), Quiet];
    play(standing(), &[&warm[..], &[Within(1, 10_000), Wait(1500)]].concat())
}

#[test]
fn query_waits_for_its_stand_in_when_no_instance_is_left() {
    let mut world = left_to_a_slow_stand_in();
    let stand_in = job(&world, |role| matches!(role, Role::StandIn(_)));
    world.send(Event::JobCompleted(stand_in));
    judge(&mut world);
    act(&mut world, &Wait(1));
    let words = words(&world);
    assert!(words.iter().any(|word| word.ends_with("answer 1 stand-in")), "{words:?}");
}

#[test]
fn query_without_instance_is_rejected_when_its_stand_in_is_lost() {
    for lost in [Leave(4), Refuse(4)] {
        let mut world = left_to_a_slow_stand_in();
        act(&mut world, &lost);
        assert!(words(&world).contains(&"3100 answer 1 NoInstance".to_owned()), "{:?}", words(&world));
    }
}
