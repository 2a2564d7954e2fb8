//! More comes than can be done in time: who is given up, and what is left.

use std::collections::BTreeMap;
use std::time::Duration;

use parm_dispatch::{
    Accept, Answer, EjectionSettings, Event, InstanceId, InstanceSpec, PolicyKind, PoolSettings, QueryId,
    QuerySpec, Reject, Served, Settings, ShapeId, ShareId, Site, Terms,
};
use proptest::prelude::*;

use super::schedule::{cases, complete_all};
use super::script::Step::{self, *};
use super::script::{play, words};
use super::world::{Fate, POOL, World};

fn plain() -> PoolSettings {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    PoolSettings { policy: PolicyKind::None, ejection, ..PoolSettings::default() }
}

/// One instance of 20 ms, asked so many times every 20 ms with so long to go; what was said after it had become known.
fn asked(settings: PoolSettings, times: u64, each: u64, within_ms: u64) -> Vec<String> {
    let mut steps = vec![Join(1), Warm(32), Quiet];
    for turn in 0..times {
        steps.extend((0..each).map(|nth| Within(1000 + each * turn + nth, within_ms)));
        steps.extend([Wait(20), Done(1)]);
    }
    words(&play(settings, &steps))
}

fn count(words: &[String], what: &str) -> usize {
    words.iter().filter(|word| word.contains("answer") && word.ends_with(what)).count()
}

#[test]
fn three_times_what_can_be_done_leaves_what_can_be_done() {
    for policy in [PolicyKind::None, PolicyKind::Hedge, PolicyKind::Equal] {
        let words = asked(PoolSettings { policy, ..plain() }, 200, 3, 100);
        let (exact, given_up) = (count(&words, "exact"), count(&words, "Overload"));
        assert!(exact >= 190, "{policy:?}: {exact} of 200 runs were in time");
        assert!(given_up >= 300, "{policy:?}: {given_up}");
        assert!(count(&words, "Deadline") <= 10, "nobody waits in vain: {}", count(&words, "Deadline"));
    }
}

#[test]
fn a_burst_that_can_be_done_loses_nobody() {
    let mut steps = vec![Join(1), Warm(32), Quiet];
    steps.extend((1..=4).map(|id| Within(id, 100)));
    steps.extend((0..4).flat_map(|_| [Wait(20), Done(1)]));
    let words = words(&play(plain(), &steps));
    assert_eq!(count(&words, "exact"), 4, "{words:?}");
}

#[test]
fn deadlines_shorter_than_a_run_change_nothing() {
    let words = asked(plain(), 20, 2, 15);
    assert_eq!(count(&words, "Overload"), 0, "{words:?}");
    assert_eq!(words.iter().filter(|word| word.contains("run")).count(), 20, "{words:?}");
}

#[test]
fn while_times_are_not_known_nobody_is_given_up() {
    let mut steps: Vec<Step> = vec![Join(1)];
    steps.extend((1..=20).map(|id| Within(id, 100)));
    steps.extend([Wait(90), Done(1)]);
    let words = words(&play(plain(), &steps));
    assert_eq!(count(&words, "Overload"), 0, "{words:?}");
}

#[test]
fn who_is_given_up_gets_the_default_answer_where_there_is_one() {
    let words = asked(PoolSettings { default_answer: true, ..plain() }, 100, 3, 100);
    assert_eq!(count(&words, "Overload"), 0);
    assert!(count(&words, "default") >= 150, "{}", count(&words, "default"));
}

/// What tells urgent queries from the flood beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Apart {
    Priority,
    Share,
}

fn arrive(world: &mut World, apart: Apart, id: u64, urgent: bool, within_ms: u64) {
    let priority = match apart {
        Apart::Priority if urgent => 1,
        Apart::Priority => 255,
        Apart::Share => 0,
    };
    world.send(Event::QueryArrived(QuerySpec {
        id: QueryId(id),
        pool: POOL,
        shape: ShapeId(0),
        deadline: world.now + Duration::from_millis(within_ms),
        priority,
        share: (apart == Apart::Share).then_some(ShareId(u32::from(!urgent))),
        accept: Accept::Exact,
        codable: true,
    }));
}

/// A world with one instance of 20 ms a query whose time is known, and a flood that waits.
fn flooded(apart: Apart, flood: u64) -> World {
    let shares: BTreeMap<_, _> =
        (0..2).map(|share| (ShareId(share), Terms { weight: 1.0, reserved: 0 })).collect();
    let shares = if apart == Apart::Share { shares } else { BTreeMap::new() };
    let mut world = World::new(Settings { shares, ..Settings::uniform(plain()) }, 7);
    let spec = InstanceSpec { serves: vec![Served::all(POOL)], slots: 1, site: Site::default() };
    world.send(Event::InstanceJoined(InstanceId(1), spec));
    for id in 0..40 {
        arrive(&mut world, apart, 1_000_000 + id, true, 60_000);
        world.advance(Duration::from_millis(20));
        complete_all(&mut world);
    }
    (0..flood).for_each(|id| arrive(&mut world, apart, 2_000_000 + id, false, 600_000));
    world
}

proptest! {
    #![proptest_config(cases(64))]

    /// An urgent query has time for the run that is under way and its own, and few other urgent queries wait.
    #[test]
    fn flood_gets_no_urgent_query_refused(
        apart in prop::sample::select(vec![Apart::Priority, Apart::Share]), flood in 0..1000u64,
        pairs in prop::collection::vec((44..100u64, 500..2000u64, 0..20u64), 1..20),
    ) {
        let mut world = flooded(apart, flood);
        for (pair, (soon, later, offset)) in (0..).zip(&pairs) {
            world.advance(Duration::from_millis(*offset));
            arrive(&mut world, apart, 2 * pair, true, *soon);
            arrive(&mut world, apart, 2 * pair + 1, true, *later);
            for _ in 0..25 {
                world.advance(Duration::from_millis(20));
                let job = world.running().next().map(|(id, _)| *id);
                job.into_iter().for_each(|job| world.send(Event::JobCompleted(job)));
            }
        }
        for pair in 0..2 * pairs.len() as u64 {
            let fate = world.queries[&QueryId(pair)].fate;
            prop_assert!(fate != Fate::Answered(Answer::Rejected(Reject::Overload)), "query {pair} of {pairs:?}");
        }
    }
}
