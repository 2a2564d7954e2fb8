//! Approximate answers that are in when the last attempt of their query fails.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_dispatch::{
    BudgetSettings, EjectionSettings, Event, Failure, Fraction, JobId, Judgement, PolicyKind, PoolSettings,
    Role,
};

use super::coded::plus;
use super::script::Step::{Cost, Done, Encoded, Fail, Join, Query, Quiet, Wait, Warm};
use super::script::{act, one_by_one, play, words};
use super::world::World;

#[test]
fn answer_of_a_stand_in_is_given_when_the_last_attempt_fails() {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    let max_attempts = NonZeroU8::MIN;
    let settings = PoolSettings { policy: PolicyKind::StandIn, ejection, max_attempts, ..one_by_one() };
    let joins = [Join(2), Join(3), Join(4)];
    let steps =
        [&[Cost([25, 50, 100, 200]), Join(1), Warm(80)], &joins[..], &[Quiet, Query(1), Wait(5)]].concat();
    let mut world = play(settings, &steps);
    let job = |world: &World, is_one: fn(Role) -> bool| -> JobId {
        *world.running().find(|(_, held)| is_one(held.job.role)).expect("it runs").0
    };
    // The spare stand-in ends first.
    let stand_in = job(&world, |role| matches!(role, Role::StandIn(_)));
    world.send(Event::JobCompleted(stand_in));
    let own = job(&world, |role| role == Role::Deployed);
    world.send(Event::JobFailed(own, Failure::Instance));
    let judging: Vec<_> = world.twins.judging.iter().copied().collect();
    for (id, output) in judging {
        world.send(Event::Judged(id, output, Judgement::Fit(Some(0.99))));
    }
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
