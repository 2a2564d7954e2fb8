//! Approximate answers that are in when the last attempt of their query fails, its deadline is near, or no instance is left.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_dispatch::{
    BudgetSettings, EjectionSettings, Event, Failure, Fraction, JobId, PolicyKind, PoolSettings, Role,
};

use super::coded::plus;
use super::script::Step::{Cost, Done, Encoded, Fail, Join, Leave, Query, Quiet, Wait, Warm, Within};
use super::script::{act, judge, one_by_one, play, words};
use super::world::World;

pub(crate) fn standing() -> PoolSettings {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    PoolSettings { policy: PolicyKind::StandIn, ejection, ..one_by_one() }
}

fn job(world: &World, is_one: fn(Role) -> bool) -> JobId {
    *world.running().find(|(_, held)| is_one(held.job.role)).expect("it runs").0
}

#[test]
fn answer_of_a_stand_in_is_given_when_the_last_attempt_fails() {
    let settings = PoolSettings { max_attempts: NonZeroU8::MIN, ..standing() };
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
