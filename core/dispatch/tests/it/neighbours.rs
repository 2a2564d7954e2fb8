//! Instances that other frontends use as well and that give no tokens.

use std::num::NonZeroU16;
use std::time::Duration;

use parm_dispatch::{Action, Event, Grant, InstanceId, InstanceSpec, Note, Served, Settings, Site, Token};
use parm_settings::{BatchSettings, EjectionSettings, PolicyKind, PoolSettings};

use super::outage::exact_otherwise;
use super::script::Step::*;
use super::script::{act, check, one_by_one, play, words};
use super::world::{POOL, World};

/// Without slow start, so that the next instance is predictable.
fn settings(policy: PolicyKind) -> PoolSettings {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    PoolSettings { policy, ejection, ..one_by_one() }
}

#[test]
fn jobs_of_neighbours_count_as_held() {
    let steps = [Join(1), Join(2), Elsewhere(1, 1, true), Query(1), Query(2), Wait(5), Elsewhere(1, 0, true)];
    check(settings(PolicyKind::None), &steps, &["0 run 1 on 2", "5 run 2 on 1"]);
}

#[test]
fn own_instances_come_before_those_of_neighbours() {
    let others = [Join(1), Join(2), Join(3), Elsewhere(1, 1, false), Elsewhere(2, 1, false)];
    // The neighbour has just released 1 and will use 2 before it.
    let let_go = [Elsewhere(2, 0, false), Wait(1), Elsewhere(1, 0, false)];
    let queries = [Query(1), Done(3), Query(2), Query(3)];
    let steps: Vec<_> = others.into_iter().chain(let_go).chain(queries).collect();
    check(
        settings(PolicyKind::None),
        &steps,
        &["1 run 1 on 3", "1 answer 1 exact", "1 run 2 on 3", "1 run 3 on 1"],
    );
}

#[test]
fn query_that_waited_a_batch_goes_where_neighbours_hold_least() {
    let steps = [
        Join(1),
        Warm(20),
        Quiet,
        Join(2),
        Elsewhere(1, 3, true),
        Elsewhere(2, 2, false),
        Query(1),
        Query(2),
        Query(3),
        Wait(19),
        Wait(2),
        // One for each, and no more until those end.
        Wait(15),
        Done(1),
        Done(2),
        Wait(6),
    ];
    check(
        settings(PolicyKind::None),
        &steps,
        &["420 run 1 on 2", "420 run 2 on 1", "436 answer 2 exact", "436 answer 1 exact", "440 run 3 on 2"],
    );
}

#[test]
fn left_instance_does_not_delay_queries() {
    let steps = [Join(1), Elsewhere(1, 1, true), Query(1), Leave(1), Elsewhere(1, 1, true), Join(2)];
    check(settings(PolicyKind::None), &steps, &["0 run 1 on 2"]);
}

#[test]
fn copies_wait_for_an_idle_home() {
    // The copy waits for an idle home: 3 is a neighbour's, and 2 is busy there.
    let steps = [Join(1), Join(2), Join(3), Elsewhere(2, 1, true), Elsewhere(3, 0, false), Query(1), Wait(1)];
    let expect = ["0 run 1 on 1"];
    check(settings(PolicyKind::Replicate), &steps, &expect);
}

#[test]
fn query_waiting_before_a_neighbour_joined_is_not_starved() {
    let steps = [Join(1), Query(1), Query(2), Wait(2), Elsewhere(1, 1, true), Wait(3), Done(1), Wait(30)];
    check(settings(PolicyKind::None), &steps, &["0 run 1 on 1", "5 answer 1 exact", "12 run 2 on 1"]);
}

#[test]
fn a_retry_that_avoids_the_least_held_goes_to_the_next() {
    let steps = [Join(1), Join(2), Query(1), Elsewhere(1, 1, true), Elsewhere(2, 2, true), Fail(1), Wait(30)];
    check(settings(PolicyKind::None), &steps, &["0 run 1 on 1", "10 run 1 on 2"]);
}

#[test]
fn a_retry_that_has_nowhere_else_to_go_is_not_forgotten() {
    // The only other one is busy with a query of ours until after the time for which the retry avoids 1.
    let steps = [Join(1), Join(2), Query(1), Query(2), Elsewhere(1, 1, true), Fail(1), Wait(150)];
    let world = play(settings(PolicyKind::None), &steps);
    let said = words(&world);
    assert_eq!(said.iter().filter(|word| word.ends_with("run 1 on 1")).count(), 2, "{said:?}");
}

#[test]
fn partial_batch_does_not_wait_forever_for_neighbours() {
    let max_size = NonZeroU16::new(4).expect("positive");
    let batch = BatchSettings { max_size: max_size.into(), max_delay: Duration::from_millis(5) };
    let settings = PoolSettings { batch, ..settings(PolicyKind::None) };
    // The batch is old after 5 ms and then waits for neighbours like any other.
    check(settings, &[Join(1), Elsewhere(1, 1, true), Query(1), Wait(50)], &["15 run 1 on 1"]);
}

#[test]
fn late_stand_in_is_not_starved_by_neighbours() {
    let fleet = [Cost([25, 50, 100, 200]), Join(1), Warm(80), JoinApart(9), Quiet];
    let steps = [Elsewhere(9, 1, true), Leave(1), Query(1), Wait(15), Wait(10)];
    check(exact_otherwise(), &[&fleet[..], &steps].concat(), &["1620 late stand-in 1 on 9"]);
}

#[test]
fn readmitted_busy_server_is_not_waited_for_longer() {
    let steps = [Join(1), Elsewhere(1, 1, true), Drain(1), Query(1), Wait(5), Join(1), Wait(50)];
    check(settings(PolicyKind::None), &steps, &["15 run 1 on 1"]);
}

#[test]
fn neighbours_cause_no_wakes_while_no_query_waits() {
    // It drains here forever, and is busy with other frontends forever.
    let steps = [Join(1), Elsewhere(1, 1, true), Query(1), Wait(11), Drain(1), Done(1), Quiet, Wait(900)];
    let world = play(settings(PolicyKind::None), &steps);
    let wakes = world.log.iter().filter(|(_, action)| matches!(action, Action::WakeAt(_))).count();
    assert!(wakes < 5, "{wakes} wakes");
}

#[test]
fn instance_with_tokens_has_no_home() {
    let settings = PoolSettings { ahead: Duration::ZERO, ..settings(PolicyKind::Replicate) };
    let mut world = World::new(Settings::uniform(settings), 7);
    for id in [1, 2] {
        act(&mut world, &Join(id));
        world.send(Event::TokensOffered(InstanceId(id)));
        act(&mut world, &Elsewhere(id, 0, false));
        let (token, met) = (Token(id), Note(0));
        let grant = Grant { token, lease: None, contended: false, reserved: false, sharers: 2, met };
        world.send(Event::TokenGranted(InstanceId(id), grant));
    }
    act(&mut world, &Query(1));
    assert_eq!(words(&world), ["0 run 1 on 1", "0 copy 1 on 2"]);
}

#[test]
fn next_query_goes_to_the_server_that_holds_least() {
    let settings = PoolSettings { ahead: Duration::ZERO, ..settings(PolicyKind::None) };
    let mut world = World::new(Settings::uniform(settings), 7);
    for id in 1..=3 {
        let spec =
            InstanceSpec { serves: vec![Served::all(POOL)], slots: 4, site: Site::default(), learns: false };
        world.send(Event::InstanceJoined(InstanceId(id), spec));
        act(&mut world, &Elsewhere(id, 0, id == 1));
    }
    (1..=6).for_each(|id| act(&mut world, &Query(id)));
    let on = |id| world.running().filter(|(_, held)| held.job.instance == InstanceId(id)).count();
    assert_eq!([on(1), on(2), on(3)], [2, 2, 2]);
}

#[test]
fn joined_instance_comes_after_idle_ones_of_neighbours() {
    let settings = PoolSettings { policy: PolicyKind::None, ..one_by_one() };
    let steps =
        [Join(1), Join(2), Warm(32), Elsewhere(2, 0, false), Wait(2000), Quiet, Join(3), Query(1), Query(2)];
    let said = words(&play(settings, &steps));
    assert_eq!(said, ["2640 run 1 on 1", "2640 run 2 on 2"]);
}
