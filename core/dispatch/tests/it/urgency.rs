//! Urgent queries next to a backlog of less urgent ones or of another share: they lose nothing.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use parm_dispatch::{
    Accept, Answer, Event, InstanceId, InstanceSpec, QueryId, QuerySpec, Reject, Served, Settings, ShapeId,
    ShareId, Site, Terms,
};
use parm_settings::{PolicyKind, PoolSettings};

use proptest::prelude::*;

use super::schedule::cases;
use super::script::Step::*;
use super::script::{one_by_one, play, words};
use super::world::{Fate, POOL, World};

/// The service time of the only instance.
const RUN: Duration = Duration::from_millis(20);

/// The difference between urgent queries and the backlog.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Shares,
    Priorities,
}

fn plain() -> PoolSettings {
    PoolSettings { policy: PolicyKind::None, ahead: Duration::ZERO, ..one_by_one() }
}

#[test]
fn urgent_queries_are_answered_when_a_backlog_of_others_waits() {
    for by in [By::Shares, By::Priorities] {
        for backlog in [0, 30, 1000] {
            let fates = urgent_fates(by, backlog);
            let exact = |fate: &&Fate| matches!(fate, Fate::Answered(Answer::Exact { .. }));
            assert_eq!(fates.iter().filter(exact).count(), fates.len(), "{by:?}, {backlog} wait: {fates:?}");
        }
    }
}

/// Plays a backlog with a minute to go. Twice a second an urgent query arrives that is in time only if it is next, and
/// another one that has a second. Returns the fates of the first ones.
fn urgent_fates(by: By, backlog: u64) -> Vec<Fate> {
    let mut world = backlogged(by, backlog);
    let urgent: Vec<_> = (0..40).map(|turn| 10_000 + 2 * turn).collect();
    for id in &urgent {
        // The current run takes up to 20 ms of the 44.
        arrive(&mut world, by, *id, true, 44);
        arrive(&mut world, by, id + 1, true, 1000);
        (0..25).for_each(|_| run(&mut world));
    }
    urgent.iter().map(|id| world.queries[&QueryId(*id)].fate).collect()
}

/// A world with one instance whose service time is known, and a backlog with a minute to go.
fn backlogged(by: By, backlog: u64) -> World {
    let count = if by == By::Shares { 2 } else { 0 };
    let terms = Terms { weight: 1.0, reserved: 0 };
    let shares: BTreeMap<_, _> = (0..count).map(|share| (ShareId(share), terms)).collect();
    let mut world = World::new(Settings { shares, ..Settings::uniform(plain()) }, 7);
    let spec =
        InstanceSpec { serves: vec![Served::all(POOL)], slots: 1, site: Site::default(), learns: false };
    world.send(Event::InstanceJoined(InstanceId(1), spec));
    for id in 0..40 {
        arrive(&mut world, by, id, true, 60_000);
        run(&mut world);
    }
    (0..backlog).for_each(|id| arrive(&mut world, by, 1000 + id, false, 60_000));
    world
}

proptest! {
    #![proptest_config(cases(64))]

    /// An urgent query has time for the run under way and its own, and few other urgent queries wait.
    #[test]
    fn flood_gets_no_urgent_query_refused(
        by in prop::sample::select(vec![By::Shares, By::Priorities]), flood in 0..1000u64,
        pairs in prop::collection::vec((44..100u64, 500..2000u64, 0..20u64), 1..20),
    ) {
        let mut world = backlogged(by, flood);
        let ids = (0..pairs.len() as u64).map(|pair| 10_000 + 2 * pair);
        for (id, (soon, later, offset)) in ids.clone().zip(&pairs) {
            world.advance(Duration::from_millis(*offset));
            arrive(&mut world, by, id, true, *soon);
            arrive(&mut world, by, id + 1, true, *later);
            (0..25).for_each(|_| run(&mut world));
        }
        for id in ids.flat_map(|id| [id, id + 1]) {
            let fate = world.queries[&QueryId(id)].fate;
            prop_assert!(fate != Fate::Answered(Answer::Rejected(Reject::Overload)), "query {id} of {pairs:?}");
        }
    }
}

fn arrive(world: &mut World, by: By, id: u64, urgent: bool, within_ms: u64) {
    let (share, priority) = match by {
        By::Shares => (Some(ShareId(u32::from(!urgent))), 0),
        By::Priorities => (None, if urgent { 1 } else { 255 }),
    };
    world.send(Event::QueryArrived(QuerySpec {
        id: QueryId(id),
        pool: POOL,
        shape: ShapeId(0),
        deadline: world.now + Duration::from_millis(within_ms),
        priority,
        share,
        accept: Accept::Exact,
        codable: true,
        size: 1,
        padded: false,
    }));
}

/// A service time passes, and the instance ends its job.
fn run(world: &mut World) {
    world.advance(RUN);
    let job = world.running().next().map(|(id, _)| *id);
    job.into_iter().for_each(|job| world.send(Event::JobCompleted(job)));
}

#[test]
fn full_queue_refuses_its_least_urgent_query() {
    let full = [Join(1), Query(1), Priority(2, 200), Priority(3, 255), Priority(4, 255), Quiet];
    let rows = [
        (Priority(5, 1), false, ["0 answer 4 QueueFull", "5 answer 1 exact", "5 run 5 on 1"]),
        (Priority(5, 254), false, ["0 answer 4 QueueFull", "5 answer 1 exact", "5 run 2 on 1"]),
        (Priority(5, 255), false, ["0 answer 5 QueueFull", "5 answer 1 exact", "5 run 2 on 1"]),
        (Priority(5, 1), true, ["0 answer 4 default", "5 answer 1 exact", "5 run 5 on 1"]),
    ];
    for (step, default_answer, expect) in rows {
        let queue_limit = NonZeroU32::new(3).expect("positive");
        let settings = PoolSettings { queue_limit, default_answer, ..plain() };
        let mut world = play(settings, &[&full[..], &[step.clone(), Wait(5), Done(1)]].concat());
        assert_eq!(words(&world), expect, "{step:?}");
        world.finish();
    }
}
