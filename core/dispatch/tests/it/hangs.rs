//! Hung instances that hold a query: the instance that answers it, and the time after its arrival.
//!
//! A hung instance sends no event, so the scripts never end its jobs. In a warm pool queries arrive at 640 ms,
//! when the usual service time of 20 ms is known: a job is late after 25 ms.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_dispatch::{Action, Event, InstanceId, InstanceSpec, QueryId, QuerySpec, Site};
use parm_settings::{PolicyKind, PoolSettings};

use super::script::Step::{self, *};
use super::script::{act, one_by_one, play, query, words};
use super::world::{POOL, World};

/// Service times are known, and the next query goes to instance 2, then to 3.
const WARM: [Step; 6] = [Cost([25, 50, 100, 200]), Join(1), Warm(32), Join(2), Join(3), Quiet];

fn under(policy: PolicyKind) -> PoolSettings {
    let mut settings = PoolSettings { policy, ..one_by_one() };
    // The order of instances in the scripts depends on nothing but which of them are idle.
    settings.ejection.slow_start = Duration::ZERO;
    settings
}

/// Plays the steps in a warm pool, compares the actions, then ends everything: no query, job or output may be left.
#[track_caller]
fn check_warm(settings: PoolSettings, steps: &[Step], expect: &[&str]) {
    check_to_the_end(settings, &[&WARM, steps].concat(), expect);
}

#[track_caller]
fn check_to_the_end(settings: PoolSettings, steps: &[Step], expect: &[&str]) {
    let mut world = play(settings, steps);
    assert_eq!(words(&world), expect);
    world.finish();
}

#[test]
fn query_runs_elsewhere_when_its_stand_in_hangs() {
    let mut settings = under(PolicyKind::StandIn);
    settings.stand_in.spare = false;
    // Query 4 waits for an instance until 664 ms. Then instance 3 takes it out of the queue as a stand-in, and hangs.
    let queued = [Query(1), Query(2), Query(3), Query(4), Quiet, Wait(24), Done(3)];
    let others = [Wait(2), Done(1), Done(2), Wait(28), Done(2), Wait(200)];
    check_warm(
        settings,
        &[&queued[..], &others].concat(),
        &[
            "664 answer 2 exact",
            "664 late stand-in 4 on 3",
            "666 answer 3 exact",
            "666 late stand-in 1 on 1",
            "666 answer 1 exact",
            "666 drop 1 on 1",
            "674 run 4 on 2", // twice the 5 ms that a stand-in usually takes
            "694 answer 4 exact",
            "694 drop 4 on 3",
        ],
    );
}

#[test]
fn early_stand_in_that_hangs_loses_no_queued_query() {
    // The same with all defaults: instance 3 runs an early stand-in first.
    let queued = [Query(1), Query(2), Query(3), Query(4), Quiet, Wait(24), Done(3)];
    let others = [Wait(2), Done(1), Done(2), Wait(28), Done(2), Wait(20), Done(2), Wait(200)];
    check_warm(
        under(PolicyKind::StandIn),
        &[&queued[..], &others].concat(),
        &[
            "664 judge 1",
            "664 late stand-in 3 on 3",
            "666 answer 2 exact",
            "666 late stand-in 4 on 1",
            "666 answer 1 exact",
            "666 check 1",
            "674 run 3 on 2",
            "694 answer 3 exact",
            "694 drop 3 on 3",
            "694 run 4 on 2",
            "714 answer 4 exact",
            "714 drop 4 on 1",
        ],
    );
}

#[test]
fn query_gets_another_copy_when_its_copy_fails() {
    // Instance 2 hangs, instance 3 fails the copy.
    check_warm(
        under(PolicyKind::Hedge),
        &[Query(1), Wait(30), Fail(3), Wait(20), Done(1), Wait(200)],
        &["640 run 1 on 2", "665 copy 1 on 3", "670 copy 1 on 1", "690 answer 1 hedged", "690 drop 1 on 2"],
    );
}

#[test]
fn query_gets_another_copy_when_only_a_hung_copy_is_left() {
    // Instance 2 fails while the copy runs on instance 3, which hangs.
    check_warm(
        under(PolicyKind::Hedge),
        &[Query(1), Wait(30), Fail(2), Wait(40), Done(1), Wait(200)],
        &["640 run 1 on 2", "665 copy 1 on 3", "690 copy 1 on 1", "710 answer 1 hedged", "710 drop 1 on 3"],
    );
}

#[test]
fn query_gets_a_copy_when_its_retry_hangs() {
    check_warm(
        under(PolicyKind::Hedge),
        &[Query(1), Wait(5), Fail(2), Wait(45), Done(1), Wait(200)],
        &["640 run 1 on 2", "645 run 1 on 3", "670 copy 1 on 1", "690 answer 1 hedged", "690 drop 1 on 3"],
    );
}

#[test]
fn query_gets_copies_up_to_max_attempts_when_all_hang() {
    let all = ["640 run 1 on 2", "665 copy 1 on 3", "690 copy 1 on 4", "715 copy 1 on 1"];
    // One copy is always allowed: it is not an attempt after a failure.
    for (most, jobs) in [(1, 2), (2, 2), (3, 3), (4, 4)] {
        let max_attempts = NonZeroU8::new(most).expect("positive");
        let settings = PoolSettings { max_attempts, ..under(PolicyKind::Hedge) };
        let steps = [&WARM[..], &[Join(4), Query(1), Wait(900)]].concat();
        let mut world = play(settings, &steps);
        assert_eq!(words(&world), all[..jobs], "max_attempts {most}");
        world.finish();
    }
}

#[test]
fn third_instance_answers_when_a_job_and_its_copy_hang() {
    let steps = [Join(4), Query(1), Wait(70), Done(4), Wait(200)];
    check_warm(
        under(PolicyKind::Hedge),
        &steps,
        &[
            "640 run 1 on 2",
            "665 copy 1 on 3",
            "690 copy 1 on 4",
            "710 answer 1 hedged",
            "710 drop 1 on 2",
            "710 drop 1 on 3",
        ],
    );
}

#[test]
fn draining_instance_that_hangs_has_its_query_copied() {
    for drain in [vec![], vec![Drain(2)]] {
        let start = [Join(1), Warm(32), Join(2), Quiet, Query(1), Wait(1)];
        let end = [Wait(44), Done(1), Wait(200)];
        check_to_the_end(
            under(PolicyKind::Hedge),
            &[&start[..], &drain, &end].concat(),
            &["640 run 1 on 2", "665 copy 1 on 1", "685 answer 1 hedged", "685 drop 1 on 2"],
        );
    }
}

#[test]
fn cold_hung_job_is_copied_once_service_times_are_known() {
    // Instance 1 hangs from the first query on, while instance 2 answers one query every 20 ms.
    let others = (1..40).flat_map(|id| [Query(id), Wait(20), Done(2)]);
    let steps: Vec<_> = [Join(1), Join(2), Query(100)].into_iter().chain(others).collect();
    let mut world = play(under(PolicyKind::Hedge), &steps);
    let (answer, after) = answered(&world, 100);
    assert_eq!(answer, "hedged", "{:?}", words(&world));
    // Times are known after 16 answers, and the job is looked at when its age doubles.
    assert!((320..700).contains(&after), "answered after {after} ms");
    world.finish();
}

#[test]
fn hung_job_is_copied_when_its_pool_begins_to_hedge() {
    let hedging = Settings(Box::new(under(PolicyKind::Hedge)));
    check_warm(
        under(PolicyKind::None),
        &[Query(1), Wait(100), hedging, Wait(20), Done(3), Wait(200)],
        &["640 run 1 on 2", "740 copy 1 on 3", "760 answer 1 hedged", "760 drop 1 on 2"],
    );
}

#[test]
fn replica_that_hangs_is_replaced_when_the_other_fails() {
    // Instance 2 hangs, instance 3 fails: the query has no job that is known to work.
    check_warm(
        under(PolicyKind::Replicate),
        &[Query(1), Wait(5), Fail(3), Wait(45), Done(1), Wait(200)],
        &["640 run 1 on 2", "640 copy 1 on 3", "665 copy 1 on 1", "690 answer 1 hedged", "690 drop 1 on 2"],
    );
}

#[test]
fn query_runs_elsewhere_when_its_replica_replaces_its_retry() {
    // The retry of query 2 waits for another instance than 1. Its replica starts on 1 meanwhile, and hangs.
    check_warm(
        under(PolicyKind::Replicate),
        &[Query(1), Query(2), Wait(5), Fail(1), Wait(15), Done(2), Wait(40), Done(2), Wait(200)],
        &[
            "640 run 1 on 2",
            "640 copy 1 on 3",
            "640 run 2 on 1",
            "645 copy 2 on 1",
            "660 answer 1 exact",
            "660 drop 1 on 3",
            "680 copy 2 on 2",
            "700 answer 2 hedged",
            "700 drop 2 on 1",
        ],
    );
}

#[test]
fn hung_job_is_copied_soon_after_a_long_crowd() {
    // Instance 2 hangs. Copies are refused for as long as more queries wait than the pool has slots.
    let longest = (100..200).step_by(10).map(copied_after_a_crowd_of).max();
    // The longest pause between two looks at a job.
    assert!(longest <= Some(100), "copied {longest:?} ms after the crowd");
}

/// Time from the end of a crowd until a query at a hung instance gets a copy. The crowd lasts `rounds` times 20 ms.
fn copied_after_a_crowd_of(rounds: u64) -> u64 {
    let mut world = play(under(PolicyKind::Hedge), &WARM);
    act(&mut world, &Within(1, 10_000));
    (2..8).for_each(|id| act(&mut world, &Query(id)));
    for id in (8..).step_by(2).take(rounds as usize) {
        [Query(id), Query(id + 1), Wait(20), Done(1), Done(3)].iter().for_each(|step| act(&mut world, step));
    }
    // Four queries wait, then two.
    [Wait(20), Done(1), Done(3)].iter().for_each(|step| act(&mut world, step));
    let ended = world.now.as_nanos() / 1_000_000;
    for _ in 0..2 {
        [Wait(20), Done(1), Done(3)].iter().for_each(|step| act(&mut world, step));
    }
    act(&mut world, &Wait(900));
    let words = words(&world);
    let copy = words.iter().find_map(|word| word.split_once(" copy 1 on ")).expect("query 1 has a copy");
    let copied: u64 = copy.0.parse().expect("milliseconds");
    copied.checked_sub(ended).expect("no copy is made in a crowd")
}

#[test]
fn story_of_a_query_says_late_once_when_two_rules_find_so() {
    // With `hedge` a copy becomes late after the first job. With `stand-in` the query becomes late and then its job.
    for policy in [PolicyKind::Hedge, PolicyKind::StandIn] {
        let mut settings = under(policy);
        settings.stand_in.spare = false;
        let mut world = play(settings, &WARM);
        world.dispatcher.follow_queries(true);
        [Query(1), Wait(300)].iter().for_each(|step| act(&mut world, step));
        let late =
            |action: &Action| matches!(action, Action::Trace(QueryId(1), parm_dispatch::Step::Late(_)));
        let count = world.log.iter().filter(|(_, action)| late(action)).count();
        assert_eq!(count, 1, "{policy:?}: {:?}", world.log);
        world.dispatcher.follow_queries(false);
        world.finish();
    }
}

/// How a query was answered, and how many milliseconds after its arrival.
fn answered(world: &World, id: u64) -> (String, u64) {
    let of = |word: &String| word.contains(&format!(" answer {id} "));
    let word = words(world).into_iter().find(of).unwrap_or_else(|| panic!("{id} was not answered"));
    let parts: Vec<_> = word.split(' ').collect();
    let at: u64 = parts[0].parse().expect("milliseconds");
    let arrived = world.queries[&QueryId(id)].query.deadline.as_nanos() / 1_000_000 - 1000;
    (parts[3].to_owned(), at - arrived)
}

#[test]
fn hung_job_is_copied_when_its_instance_lost_the_model() {
    let plain = under(PolicyKind::None);
    let mut world = play(plain.clone(), &[&WARM[..], &[Query(1)]].concat());
    let spec = InstanceSpec { serves: Vec::new(), slots: 1, site: Site::default(), learns: false };
    world.send(Event::InstanceJoined(InstanceId(2), spec));
    act(&mut world, &Hedged(Box::new(plain)));
    act(&mut world, &Wait(30));
    assert_eq!(words(&world), ["640 run 1 on 2", "665 copy 1 on 3"]);
}

#[test]
fn hung_job_is_copied_when_a_run_of_another_size_was_too_short() {
    // The first run of two rows ends at once. Those after it seem to take for ever, as if instance 1 were slow.
    let mut world = play(under(PolicyKind::Hedge), &[Cost([25, 50, 100, 200]), Join(1), Warm(80)]);
    for (id, takes) in [(101, 0), (102, 20), (103, 20), (104, 20)] {
        let deadline = world.now + Duration::from_secs(1);
        world.send(Event::QueryArrived(QuerySpec { size: 2, ..query(id, deadline) }));
        [Wait(takes), Done(1)].iter().for_each(|step| act(&mut world, step));
    }
    [Join(2), Query(1), Wait(400)].iter().for_each(|step| act(&mut world, step));
    let of_query: Vec<_> = words(&world).into_iter().filter(|word| word.contains(" 1 on ")).collect();
    assert!(of_query.len() > 1, "{of_query:?}");
}

#[test]
fn copy_counts_as_a_hedge_only_when_it_starts() {
    // The other instance is busy while query 1 is late.
    let late = [Query(1), Wait(5), Query(2), Wait(20), Done(1), Done(2)];
    let steps = [&[Join(1), Warm(80), Join(2), Quiet], &late[..]].concat();
    let world = play(PoolSettings { policy: PolicyKind::Hedge, ..one_by_one() }, &steps);
    let counters = world.dispatcher.status(POOL).expect("the pool").counters;
    assert_eq!(counters.hedges, 0, "{:?}", words(&world));
}
