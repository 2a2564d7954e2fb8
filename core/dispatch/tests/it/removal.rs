//! Removal of the last instance or of the model: the time when the remaining queries are answered.

use std::time::Duration;

use parm_settings::{PolicyKind, PoolSettings};

use super::script::Step::{self, *};
use super::script::{one_by_one, play, words};

/// Service times are known, and a row of the stand-in costs a quarter of a query.
const WARM: [Step; 5] = [Cost([25, 50, 100, 200]), Join(1), Warm(32), Join(2), Quiet];

fn under(policy: PolicyKind) -> PoolSettings {
    let no_instance_grace = Duration::from_millis(100);
    let mut settings = PoolSettings { policy, no_instance_grace, ..one_by_one() };
    settings.ejection.slow_start = Duration::ZERO;
    settings
}

#[track_caller]
fn check_warm(settings: PoolSettings, steps: &[Step], expect: &[&str]) {
    let mut world = play(settings, &[&WARM, steps].concat());
    assert_eq!(words(&world), expect);
    world.finish();
}

/// Late stand-ins only.
fn standing_in() -> PoolSettings {
    let mut settings = under(PolicyKind::StandIn);
    (settings.stand_in.spare, settings.stand_in.hedge) = (false, false);
    settings
}

/// A client that accepts no stand-in is first in its lane. Query 3 behind it gets a stand-in at 664 ms.
const ONE_WAITS_AND_ONE_STANDS_IN: [Step; 7] =
    [Leave(2), Query(1), Exact(2), Query(3), Wait(24), Done(1), Quiet];

#[test]
fn query_is_refused_once_when_its_last_stand_in_leaves() {
    check_warm(
        standing_in(),
        &[&ONE_WAITS_AND_ONE_STANDS_IN[..], &[Leave(1), Wait(300)]].concat(),
        &["764 answer 2 NoInstance", "764 answer 3 NoInstance"],
    );
}

#[test]
fn queries_are_answered_once_when_an_instance_joins_in_time() {
    check_warm(
        standing_in(),
        &[
            &ONE_WAITS_AND_ONE_STANDS_IN[..],
            &[Leave(1), Wait(50), Join(4), Wait(5), Done(4), Judged(Some(90)), Wait(20), Done(4), Wait(300)],
        ]
        .concat(),
        &[
            "714 late stand-in 3 on 4",
            "719 judge 3",
            "719 run 3 on 4",
            "719 answer 3 stand-in",
            "719 drop 3 on 4",
            "739 check 3",
            "739 run 2 on 4",
        ],
    );
}

#[test]
fn query_is_refused_at_once_when_its_copy_waits_in_vain() {
    // Both instances are busy, so the copies of the late queries wait when the model is unloaded.
    check_warm(
        under(PolicyKind::Hedge),
        &[Query(1), Query(2), Quiet, Wait(30), Unload, Leave(1), Leave(2), Wait(300)],
        &["670 answer 2 NoInstance", "670 answer 1 NoInstance"],
    );
}

#[test]
fn query_is_answered_by_its_job_when_its_model_is_unloaded() {
    check_warm(
        under(PolicyKind::Hedge),
        &[Query(1), Query(2), Quiet, Wait(30), Unload, Leave(1), Wait(10), Done(2), Wait(300)],
        &["670 answer 2 NoInstance", "680 answer 1 exact"],
    );
}

#[test]
fn kept_instance_runs_queries_when_the_others_are_out() {
    let (settings, start) = two_of_three_out();
    let mut world =
        play(settings, &[&start[..], &[Query(7), Leave(1), Wait(5), Done(3), Wait(300)]].concat());
    assert_eq!(words(&world), ["15 run 7 on 1", "15 run 7 on 3", "20 answer 7 exact"]);
    world.finish();
}

/// Instance 3 is kept for parities, and instance 2 is out of service for a minute.
fn two_of_three_out() -> (PoolSettings, Vec<Step>) {
    let failing = |id| [Query(id), Query(id + 1), Fail(2), Wait(5), Done(1), Done(1)];
    let start = [Join(1), Join(2), Join(3)].into_iter().chain([1, 3, 5].map(failing).concat());
    let mut settings = under(PolicyKind::Parm);
    settings.ejection.backoff_min = Duration::from_secs(60);
    settings.ejection.backoff_max = Duration::from_secs(60);
    (settings, start.chain([Quiet]).collect())
}

#[test]
fn kept_instance_runs_waiting_queries_when_the_others_drain() {
    let (settings, start) = two_of_three_out();
    let mut world = play(settings, &[&start[..], &[Query(7), Query(8), Drain(1), Wait(5), Done(3)]].concat());
    assert_eq!(words(&world), ["15 run 7 on 1", "15 run 8 on 3", "15 encode 7|8", "20 answer 8 exact"]);
    world.finish();
}
