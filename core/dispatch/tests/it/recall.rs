//! Slow instances that are out of service return when no other instance is left.

use std::time::Duration;

use parm_settings::{BatchSettings, EjectionSettings, PolicyKind, PoolSettings};

use super::script::Step::{self, *};
use super::script::{one_by_one, play, words};

/// A slow instance is probed only after a minute, and queries wait 100 ms for an instance.
fn settings() -> PoolSettings {
    let away = Duration::from_secs(60);
    let ejection = EjectionSettings {
        slow_start: Duration::ZERO,
        backoff_min: away,
        backoff_max: away,
        ..EjectionSettings::default()
    };
    let no_instance_grace = Duration::from_millis(100);
    PoolSettings { policy: PolicyKind::None, ejection, no_instance_grace, ..one_by_one() }
}

/// Instance 2 answers slowly twice and is ejected, while instance 1 idles. It is 840 ms then.
fn slow_two_is_ejected() -> Vec<Step> {
    let slow = |id| [Query(id), Query(id + 1), Done(1), Wait(100), Done(2)];
    [Join(1), Warm(32), Join(2)].into_iter().chain(slow(101)).chain(slow(111)).chain([Quiet]).collect()
}

#[track_caller]
fn check(settings: PoolSettings, steps: &[Step], expect: &[&str]) {
    let mut world = play(settings, &[&slow_two_is_ejected(), steps].concat());
    assert_eq!(words(&world), expect);
    world.finish();
}

#[test]
fn query_runs_on_a_slow_instance_when_the_others_left() {
    check(settings(), &[Leave(1), Query(1), Wait(300)], &["840 run 1 on 2"]);
}

#[test]
fn query_runs_on_a_slow_instance_when_the_others_drain() {
    check(
        settings(),
        &[Query(1), Query(2), Drain(1), Wait(50), Done(2), Done(1), Wait(300)],
        &["840 run 1 on 1", "840 run 2 on 2", "890 answer 2 exact", "890 answer 1 exact"],
    );
}

#[test]
fn retry_runs_on_a_slow_instance_when_the_others_left() {
    check(settings(), &[Query(1), Leave(1), Wait(300)], &["840 run 1 on 1", "840 run 1 on 2"]);
}

#[test]
fn retry_runs_on_a_slow_instance_when_the_only_other_failed_it() {
    check(settings(), &[Query(1), Fail(1), Wait(300)], &["840 run 1 on 1", "840 run 1 on 2"]);
}

#[test]
fn failing_instance_is_probed_soon_when_the_others_left() {
    let failures = 1.try_into().expect("positive");
    let ejection = EjectionSettings { failures, slow_start: Duration::ZERO, ..EjectionSettings::default() };
    let settings = PoolSettings { policy: PolicyKind::None, ejection, ..one_by_one() };
    let failed = |wait| [Wait(wait), Probe(1, false)];
    // The next probe is two seconds away.
    let begin = [Join(1), Join(2), Query(1), Fail(1), Done(2)];
    let begin = [&begin[..], &failed(300), &failed(600), &failed(1200), &[Leave(2), Quiet]].concat();
    let end = [Within(2, 5000), Wait(900), Probe(1, true), Done(1)];
    let mut world = play(settings, &[&begin[..], &end].concat());
    assert_eq!(words(&world), ["2350 probe 1", "3000 run 2 on 1", "3000 answer 2 exact"]);
    world.finish();
}

#[test]
fn batch_waits_for_company_at_a_slow_instance() {
    let max_size = std::num::NonZeroU16::new(8).expect("positive").into();
    let batch = BatchSettings { max_size, max_delay: Duration::from_millis(20) };
    let batching = Settings(Box::new(PoolSettings { batch, ..settings() }));
    check(settings(), &[batching, Leave(1), Query(1), Wait(300)], &["860 run 1 on 2"]);
}
