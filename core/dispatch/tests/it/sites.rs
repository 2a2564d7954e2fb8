//! Sites: redundancy avoids the machines and zones that hold a query.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_dispatch::{
    Action, CardId, Event, InstanceId, InstanceSpec, NodeId, ProcessId, Role, Served, Settings, Site, ZoneId,
};
use parm_settings::{PolicyKind, PoolSettings, ReplicateSettings, StandInSettings};
use proptest::prelude::*;

use super::script::Step::*;
use super::script::{Step, act, check, one_by_one};
use super::world::{POOL, World};

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

/// A site of a few processes, cards, nodes and zones, each of which may be unknown.
fn site() -> impl Strategy<Value = Site> {
    let some = |most: u32| prop::option::weighted(0.8, 0..most);
    (some(4), some(3), some(3), some(2)).prop_map(|(process, card, node, zone)| Site {
        process: process.map(ProcessId),
        card: card.map(CardId),
        node: node.map(NodeId),
        zone: zone.map(ZoneId),
    })
}

/// The closest failure domain that two sites share, from none to the process.
fn shared(one: Site, other: Site) -> u8 {
    let same = |one: Option<u32>, other: Option<u32>| one.is_some() && one == other;
    match () {
        () if same(one.process.map(|id| id.0), other.process.map(|id| id.0)) => 4,
        () if same(one.card.map(|id| id.0), other.card.map(|id| id.0)) => 3,
        () if same(one.node.map(|id| id.0), other.node.map(|id| id.0)) => 2,
        () if same(one.zone.map(|id| id.0), other.zone.map(|id| id.0)) => 1,
        () => 0,
    }
}

proptest! {
    /// Copies, parities and stand-ins share the farthest failure domain with their queries that idle instances offer.
    #[test]
    fn redundant_jobs_run_as_far_away_as_instances_allow(
        sites in prop::collection::vec(site(), 4..9), policy in 0..3usize, queries in 1..3u64,
    ) {
        let policy = [PolicyKind::Replicate, PolicyKind::StandIn, PolicyKind::ParmPlus][policy];
        let mut settings = PoolSettings { ahead: Duration::ZERO, ..settings(policy) };
        settings.replicate = replicating().replicate;
        let mut world = World::new(Settings::uniform(settings), 7);
        for step in [Cost([1, 2, 3, 4]), Join(0), Warm(32), Leave(0)] {
            act(&mut world, &step);
        }
        for (id, site) in sites.iter().enumerate() {
            let serves = vec![Served::all(POOL)];
            let spec = InstanceSpec { serves, slots: 1, site: *site, learns: false };
            world.send(Event::InstanceJoined(InstanceId(id as u32 + 1), spec));
        }
        world.log.clear();
        for id in 1..=queries {
            act(&mut world, &Query(id));
        }
        if !world.groups.encodings.is_empty() {
            act(&mut world, &Encoded);
        }
        let mut busy: Vec<(InstanceId, Vec<u64>)> = Vec::new();
        let at = |id: InstanceId| sites[id.0 as usize - 1];
        for (_, action) in &world.log {
            let Action::Run(job, rows) = action else { continue };
            let rows: Vec<u64> = match job.role {
                Role::Parity(..) => (1..=queries).collect(),
                _ => rows.iter().map(|row| row.0).collect(),
            };
            if job.role != Role::Deployed {
                let held = |(_, held): &&(InstanceId, Vec<u64>)| held.iter().any(|query| rows.contains(query));
                let others: Vec<Site> = busy.iter().filter(held).map(|(id, _)| at(*id)).collect();
                let closest = |site: Site| others.iter().map(|other| shared(site, *other)).max().unwrap_or(0);
                let is_idle = |id: &InstanceId| !busy.iter().any(|(other, _)| other == id);
                let idle = (1..=sites.len() as u32).map(InstanceId).filter(is_idle);
                let best = idle.map(|id| closest(at(id))).min();
                prop_assert_eq!(Some(closest(at(job.instance))), best, "{:?} {:?}", job, sites);
            }
            busy.push((job.instance, rows));
        }
    }
}
