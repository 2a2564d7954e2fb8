//! Sites: redundancy avoids the machines and zones that hold a query.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_dispatch::{PolicyKind, PoolSettings, ReplicateSettings, StandInSettings};

use super::script::Step::*;
use super::script::{Step, check, one_by_one};

fn settings(policy: PolicyKind) -> PoolSettings {
    let mut settings = PoolSettings { policy, ..one_by_one() };
    // Without slow start, so that only idle instances matter.
    settings.ejection.slow_start = Duration::ZERO;
    settings
}

fn replicating() -> PoolSettings {
    let copies = const { NonZeroU8::new(2).unwrap() };
    PoolSettings { replicate: ReplicateSettings { copies }, ..settings(PolicyKind::Replicate) }
}

/// Instances 1 and 2 on one node. Without sites the copy would go to 2.
const SAME_NODE: [Step; 2] = [JoinAt(1, 1, 1), JoinAt(2, 1, 1)];

#[test]
fn copy_prefers_another_zone_then_another_node() {
    for (others, expected) in [
        (&[JoinAt(3, 2, 1), JoinAt(4, 3, 2)][..], "0 copy 1 on 4"),
        (&[JoinAt(3, 2, 1)], "0 copy 1 on 3"),
        (&[], "0 copy 1 on 2"),
        // An instance without a known site may be anywhere.
        (&[Join(3)], "0 copy 1 on 3"),
    ] {
        let steps = [&SAME_NODE, others, &[Query(1)]].concat();
        check(replicating(), &steps, &["0 run 1 on 1", expected]);
    }
}

#[test]
fn copy_prefers_another_card_then_another_process() {
    for (others, expected) in [
        (&[JoinOn(3, 2, 1), JoinOn(4, 3, 2)][..], "0 copy 1 on 4"),
        (&[JoinOn(3, 2, 1)], "0 copy 1 on 3"),
        (&[], "0 copy 1 on 2"),
        (&[JoinOn(3, 2, 1), JoinAt(4, 2, 1)], "0 copy 1 on 4"),
    ] {
        let steps = [&[JoinOn(1, 1, 1), JoinOn(2, 1, 1)][..], others, &[Query(1)]].concat();
        check(replicating(), &steps, &["0 run 1 on 1", expected]);
    }
}

#[test]
fn a_hedge_stays_away_from_the_node_of_the_late_job() {
    let nodes = [JoinAt(1, 1, 1), Warm(32), JoinAt(2, 2, 1), JoinAt(3, 2, 1), JoinAt(4, 2, 1)];
    let steps = [&nodes[..], &[Quiet, Query(1), Wait(30)]].concat();
    check(settings(PolicyKind::Hedge), &steps, &["640 run 1 on 2", "665 copy 1 on 1"]);
}

#[test]
fn a_retry_stays_away_from_the_node_where_it_failed() {
    let steps = [&SAME_NODE[..], &[JoinAt(3, 2, 1), Query(1), Fail(1)]].concat();
    check(settings(PolicyKind::None), &steps, &["0 run 1 on 1", "0 run 1 on 3"]);
}

#[test]
fn a_late_job_need_not_wait_for_a_node_that_is_apart() {
    let nodes = [JoinAt(1, 1, 1), Warm(32), JoinAt(2, 2, 1), JoinAt(3, 2, 1)];
    let steps = [&nodes[..], &[Query(1), Query(2), Query(3), Quiet, Wait(25), Done(3), Wait(5)]].concat();
    // All are busy when the first is late. The instance that becomes free shares its machine, and is better than
    // none.
    check(settings(PolicyKind::Hedge), &steps, &["665 answer 2 exact", "665 copy 1 on 3"]);
}

#[test]
fn a_stand_in_is_made_on_another_node_than_its_query_runs() {
    let standing_in =
        || PoolSettings { stand_in: StandInSettings::default(), ..settings(PolicyKind::StandIn) };
    for apart in [1, 3, 4] {
        let node = |id: u32| JoinAt(id, u32::from(id == apart), 1);
        let nodes = [Cost([25, 50, 100, 200]), node(1), Warm(32), node(2), node(3), node(4), Quiet];
        let steps = [&nodes[..], &[Query(1)]].concat();
        let stand_in = format!("640 stand-in 1 on {apart}");
        check(standing_in(), &steps, &["640 run 1 on 2", &stand_in]);
    }
}
