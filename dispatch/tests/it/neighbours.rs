//! Instances that other frontends use as well and that give no tokens.

use std::time::Duration;

use parm_dispatch::{EjectionSettings, PolicyKind, PoolSettings};

use super::script::Step::*;
use super::script::check;

/// Who joins gets its share at once, so that who comes next is plain.
fn settings(policy: PolicyKind) -> PoolSettings {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    PoolSettings { policy, ejection, ..PoolSettings::default() }
}

#[test]
fn what_others_hold_counts_as_held() {
    let steps = [Join(1), Join(2), Elsewhere(1, 1, true), Query(1), Query(2), Wait(5), Elsewhere(1, 0, true)];
    check(settings(PolicyKind::None), &steps, &["0 run 1 on 2", "5 run 2 on 1"]);
}

#[test]
fn ones_own_come_first_and_others_where_those_are_busy() {
    let others = [Join(1), Join(2), Join(3), Elsewhere(1, 1, false), Elsewhere(2, 1, false)];
    // The neighbour has just done with 1: it will come back to it after 2.
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
fn what_has_waited_for_a_batchs_time_goes_where_neighbours_hold_least() {
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
        // One for each, and no more while those run.
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
fn an_instance_that_left_is_in_nobodys_way() {
    let steps = [Join(1), Elsewhere(1, 1, true), Query(1), Leave(1), Elsewhere(1, 1, true), Join(2)];
    check(settings(PolicyKind::None), &steps, &["0 run 1 on 2"]);
}

#[test]
fn copies_are_not_put_in_anybodys_way() {
    // The copy waits until an instance is idle that is ours: 3 is a neighbour's, and 2 is busy there.
    let steps = [Join(1), Join(2), Join(3), Elsewhere(2, 1, true), Elsewhere(3, 0, false), Query(1), Wait(1)];
    let expect = ["0 run 1 on 1"];
    check(settings(PolicyKind::Replicate), &steps, &expect);
}
