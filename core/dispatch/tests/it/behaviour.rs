//! The dispatcher's behaviour, situation by situation.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::time::Duration;

use parm_settings::{
    BatchSettings, BudgetSettings, EjectionSettings, Fraction, HedgeSettings, PolicyKind, PoolSettings,
    ReplicateSettings,
};

use super::script::Step::*;
use super::script::{check, one_by_one, play, words};
use super::world::POOL;

fn plain() -> PoolSettings {
    PoolSettings { policy: PolicyKind::None, ejection: at_once(), ..one_by_one() }
}

fn hedging() -> PoolSettings {
    PoolSettings { policy: PolicyKind::Hedge, ejection: at_once(), ..one_by_one() }
}

/// Without slow start, so that the next instance is predictable.
fn at_once() -> EjectionSettings {
    EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() }
}

fn replicating(copies: u8) -> PoolSettings {
    let copies = NonZeroU8::new(copies).expect("positive");
    PoolSettings { policy: PolicyKind::Replicate, replicate: ReplicateSettings { copies }, ..one_by_one() }
}

fn batching(size: u16, delay_ms: u64) -> PoolSettings {
    let max_size = NonZeroU16::new(size).expect("positive").into();
    PoolSettings { batch: BatchSettings { max_size, max_delay: Duration::from_millis(delay_ms) }, ..plain() }
}

#[test]
fn a_query_runs_at_once_on_an_idle_instance() {
    check(plain(), &[Join(1), Query(1), Wait(5), Done(1)], &["0 run 1 on 1", "5 answer 1 exact"]);
}

#[test]
fn queries_wait_for_the_first_free_instance() {
    let steps = [Join(1), Join(2), Query(1), Query(2), Query(3), Wait(5), Done(2)];
    check(plain(), &steps, &["0 run 1 on 1", "0 run 2 on 2", "5 answer 2 exact", "5 run 3 on 2"]);
}

#[test]
fn higher_priority_overtakes() {
    let steps = [Join(1), Query(1), Query(2), Priority(3, 1), Quiet, Done(1)];
    check(plain(), &steps, &["0 answer 1 exact", "0 run 3 on 1"]);
}

#[test]
fn a_deadline_is_kept_to_the_moment_and_queued_work_dropped() {
    let steps = [Join(1), Within(1, 30), Within(2, 10), Quiet, Wait(40), Done(1)];
    check(plain(), &steps, &["10 answer 2 Deadline", "30 answer 1 Deadline", "30 drop 1 on 1"]);
}

#[test]
fn a_deadline_that_has_passed_is_refused_at_once() {
    check(plain(), &[Join(1), Within(1, 0)], &["0 answer 1 Deadline"]);
}

#[test]
fn default_answer_is_given_at_the_deadline() {
    let settings = PoolSettings { default_answer: true, ..plain() };
    check(settings, &[Join(1), Within(1, 10), Quiet, Wait(10)], &["10 answer 1 default", "10 drop 1 on 1"]);
}

#[test]
fn a_full_queue_refuses_at_once() {
    let settings = PoolSettings { queue_limit: NonZeroU32::MIN, ..plain() };
    check(settings, &[Join(1), Query(1), Query(2), Query(3)], &["0 run 1 on 1", "0 answer 3 QueueFull"]);
}

#[test]
fn cancelled_work_is_never_started() {
    let steps = [Join(1), Query(1), Query(2), Query(3), Cancel(2), Quiet, Done(1)];
    check(plain(), &steps, &["0 answer 1 exact", "0 run 3 on 1"]);
}

#[test]
fn a_job_is_dropped_when_its_last_query_is_cancelled() {
    let steps = [Join(1), Query(1), Quiet, Cancel(1), Query(2), Done(1)];
    check(plain(), &steps, &["0 drop 1 on 1", "0 run 2 on 1"]);
}

#[test]
fn a_batch_is_sent_when_full_or_old() {
    let steps = [Join(1), Query(1), Wait(2), Query(2), Wait(1), Done(1), Query(3), Wait(10)];
    check(
        batching(2, 5),
        &steps,
        &["2 run 1+2 on 1", "3 answer 1 exact", "3 answer 2 exact", "8 run 3 on 1"],
    );
}

#[test]
fn a_batch_has_one_shape() {
    let steps = [Join(1), Query(1), Shape(2, 9), Wait(1), Query(3), Shape(4, 9), Done(1), Done(1), Done(1)];
    check(
        batching(4, 0),
        &steps,
        &[
            "0 run 1 on 1",
            "1 answer 1 exact",
            "1 run 2+4 on 1",
            "1 answer 2 exact",
            "1 answer 4 exact",
            "1 run 3 on 1",
            "1 answer 3 exact",
        ],
    );
}

#[test]
fn a_failed_job_is_tried_on_another_instance() {
    let steps = [Join(1), Join(2), Query(1), Fail(1), Done(2)];
    check(plain(), &steps, &["0 run 1 on 1", "0 run 1 on 2", "0 answer 1 exact"]);
}

#[test]
fn a_retry_waits_for_another_instance_while_there_is_one() {
    let steps = [Join(1), Join(2), Query(1), Query(2), Fail(1), Quiet, Leave(2)];
    check(plain(), &steps, &["0 run 1 on 1"]);
}

#[test]
fn a_retry_goes_back_when_no_other_instance_comes_free() {
    let steps = [Join(1), Join(2), Query(1), Query(2), Quiet, Fail(1), Wait(150), Done(1)];
    check(plain(), &steps, &["100 run 1 on 1", "150 answer 1 exact"]);
    let known = [Join(1), Warm(32), Join(2), Query(1), Query(2), Quiet, Fail(2), Wait(50), Done(2)];
    check(plain(), &known, &["660 run 1 on 2", "690 answer 1 exact"]);
}

#[test]
fn attempts_are_bounded() {
    let steps = [Join(1), Join(2), Join(3), Query(1), Fail(1), Fail(2), Fail(3)];
    check(plain(), &steps, &["0 run 1 on 1", "0 run 1 on 2", "0 run 1 on 3", "0 answer 1 Failed"]);
}

#[test]
fn retries_stay_within_their_budget() {
    let settings =
        PoolSettings { retry: BudgetSettings { ratio: Fraction::percent(0), burst: 1 }, ..plain() };
    let steps = [Join(1), Join(2), Query(1), Query(2), Quiet, Fail(1), Fail(2)];
    check(settings, &steps, &["0 answer 2 Failed", "0 run 1 on 2"]);
}

#[test]
fn jobs_of_a_lost_instance_run_elsewhere() {
    let steps = [Join(1), Join(2), Query(1), Wait(3), Leave(1), Done(2)];
    check(plain(), &steps, &["0 run 1 on 1", "3 run 1 on 2", "3 answer 1 exact"]);
}

#[test]
fn a_refused_query_fails_alone() {
    check(plain(), &[Join(1), Query(1), Refuse(1)], &["0 run 1 on 1", "0 answer 1 BadQuery"]);
}

#[test]
fn the_query_that_spoils_a_batch_is_found() {
    let steps = [Join(1), Query(1), Query(2), Refuse(1), Done(1), Refuse(1)];
    check(
        batching(2, 5),
        &steps,
        &["0 run 1+2 on 1", "0 run 1 on 1", "0 answer 1 exact", "0 run 2 on 1", "0 answer 2 BadQuery"],
    );
}

#[test]
fn a_draining_instance_finishes_and_gets_no_more() {
    let steps = [Join(1), Join(2), Query(1), Drain(1), Query(2), Query(3), Done(1)];
    check(plain(), &steps, &["0 run 1 on 1", "0 run 2 on 2", "0 answer 1 exact"]);
}

#[test]
fn without_instances_queries_wait_for_the_grace() {
    let settings = PoolSettings { no_instance_grace: Duration::from_millis(100), ..plain() };
    let steps = [Query(1), Wait(50), Query(2), Wait(75), Join(1)];
    check(settings, &steps, &["100 answer 1 NoInstance", "125 run 2 on 1"]);
}

#[test]
fn queries_wait_for_instances_that_left_too() {
    let settings = PoolSettings { no_instance_grace: Duration::from_millis(100), ..plain() };
    let steps = [Join(1), Query(1), Query(2), Wait(50), Quiet, Leave(1), Wait(100)];
    check(settings, &steps, &["150 answer 2 NoInstance", "150 answer 1 NoInstance"]);
}

#[test]
fn a_late_job_is_copied_and_the_first_answer_wins() {
    let steps = [Join(1), Warm(32), Join(2), Quiet, Query(1), Wait(30), Done(1), Wait(1), Done(2)];
    check(
        hedging(),
        &steps,
        &["640 run 1 on 2", "665 copy 1 on 1", "670 answer 1 hedged", "670 drop 1 on 2"],
    );
}

#[test]
fn a_late_job_that_answers_first_wins_over_its_copy() {
    let steps = [Join(1), Warm(32), Join(2), Quiet, Query(1), Wait(30), Done(2), Done(1)];
    check(hedging(), &steps, &["640 run 1 on 2", "665 copy 1 on 1", "670 answer 1 exact", "670 drop 1 on 1"]);
}

#[test]
fn nothing_is_hedged_before_service_times_are_known() {
    check(hedging(), &[Join(1), Join(2), Query(1), Wait(500)], &["0 run 1 on 1"]);
}

#[test]
fn a_copy_never_joins_its_query_on_an_instance() {
    let steps = [Join(1), Warm(32), Join(2), Query(1), Query(2), Quiet, Wait(30), Done(1)];
    // Both are late and both instances are busy; 1 frees up and takes the copy of the query that it does not hold.
    check(hedging(), &steps, &["670 answer 2 exact", "670 copy 1 on 1"]);
}

#[test]
fn hedges_stay_within_their_budget() {
    let budget = BudgetSettings { ratio: Fraction::percent(0), burst: 1 };
    let settings = PoolSettings { hedge: HedgeSettings { budget, ..HedgeSettings::default() }, ..hedging() };
    let steps = [Join(1), Warm(32), Join(2), Join(3), Join(4), Query(1), Query(2), Quiet, Wait(60)];
    check(settings, &steps, &["665 copy 1 on 4"]);
}

#[test]
fn a_hedge_that_a_crowd_forbids_is_asked_for_again() {
    let crowd =
        [Join(1), Warm(32), Join(2), Query(1), Query(2), Query(3), Query(4), Query(5), Quiet, Wait(30)];
    let gone = [Done(1), Done(1), Done(1), Done(1), Wait(60)];
    let steps: Vec<_> = crowd.into_iter().chain(gone).collect();
    let said = words(&play(hedging(), &steps));
    assert_eq!(said.first().map(String::as_str), Some("670 answer 2 exact"), "no copy at 665: {said:?}");
    assert_eq!(said.last().map(String::as_str), Some("685 copy 1 on 1"), "{said:?}");
}

#[test]
fn replicas_run_on_distinct_instances_at_once() {
    let steps = [Join(1), Join(2), Join(3), Query(1), Done(2), Done(1)];
    check(replicating(2), &steps, &["0 run 1 on 1", "0 copy 1 on 2", "0 answer 1 hedged", "0 drop 1 on 1"]);
}

#[test]
fn replicas_give_way_to_queries_and_are_dropped_when_useless() {
    let steps = [Join(1), Query(1), Query(2), Join(2), Done(1), Done(2)];
    // 2 is served before the replica of 1, which is useless when an instance has room.
    check(
        replicating(2),
        &steps,
        &[
            "0 run 1 on 1",
            "0 run 2 on 2",
            "0 answer 1 exact",
            "0 copy 2 on 1",
            "0 answer 2 exact",
            "0 drop 2 on 1",
        ],
    );
}

/// One slow answer on instance 2 while instance 1 idles. Work goes round, so a query for 1 comes between.
fn slow_on_two() -> [super::script::Step; 5] {
    [Query(101), Query(102), Done(1), Wait(100), Done(2)]
}

fn again(steps: [super::script::Step; 5], by: u64) -> [super::script::Step; 5] {
    steps.map(|step| if let Query(id) = step { Query(id + by) } else { step })
}

#[test]
fn two_slow_answers_eject_until_a_probe_succeeds() {
    let mut steps = vec![Join(1), Warm(32), Join(2)];
    steps.extend(slow_on_two());
    steps.extend(again(slow_on_two(), 10));
    steps.extend([Quiet, Query(1), Query(2), Wait(280), Probe(2, false), Wait(560), Probe(2, true)]);
    let settings = PoolSettings { no_instance_grace: Duration::from_secs(9), ..plain() };
    let world = super::script::play(settings, &steps);
    let words: Vec<_> =
        super::script::words(&world).iter().map(|word| word[word.find(' ').unwrap()..].to_owned()).collect();
    assert_eq!(words, [" run 1 on 1", " probe 2", " probe 2", " run 2 on 2"]);
}

#[test]
fn slow_start_follows_failures_but_not_slowness() {
    let next = |trouble: &[super::script::Step]| {
        let mut steps = vec![Join(1), Warm(32), Join(2), Wait(1000)];
        steps.extend_from_slice(trouble);
        steps.extend([Query(40), Quiet, Wait(280), Probe(2, true), Done(1)]);
        // Both are idle, and instance 1 has had its turn.
        steps.extend([Quiet, Query(41)]);
        let settings = PoolSettings { ejection: EjectionSettings::default(), ..plain() };
        super::script::words(&super::script::play(settings, &steps)).pop()
    };
    let slow = [slow_on_two(), again(slow_on_two(), 10)].concat();
    assert!(next(&slow).is_some_and(|word| word.ends_with("run 41 on 2")), "{:?}", next(&slow));
    let failing: Vec<_> =
        (0..3).flat_map(|turn| [Query(20 + turn), Query(30 + turn), Done(1), Fail(2), Done(1)]).collect();
    assert!(next(&failing).is_some_and(|word| word.ends_with("run 41 on 1")), "{:?}", next(&failing));
}

#[test]
fn slow_instance_is_kept_when_others_cannot_take_its_load() {
    let ejection = EjectionSettings { max_utilisation: Fraction::percent(0), ..at_once() };
    let mut steps = vec![Join(1), Warm(32), Join(2)];
    steps.extend(slow_on_two());
    steps.extend(again(slow_on_two(), 10));
    steps.extend([Quiet, Query(1), Query(2)]);
    let settings = PoolSettings { ejection, ..plain() };
    check(settings, &steps, &["840 run 1 on 2", "840 run 2 on 1"]);
}

#[test]
fn an_ejected_slow_instance_is_called_back_when_work_piles_up() {
    let mut steps = vec![Join(1), Warm(32), Join(2)];
    steps.extend(slow_on_two());
    steps.extend(again(slow_on_two(), 10));
    steps.extend([Quiet, Query(1), Query(2), Query(3)]);
    check(plain(), &steps, &["840 run 1 on 1", "840 run 2 on 2"]);
}

#[test]
fn job_late_because_of_the_queue_is_not_hedged() {
    let late = |waiting: u64| {
        let mut steps = vec![Join(1), Warm(32), Join(2), Quiet];
        steps.extend((1..=2 + waiting).map(Query));
        steps.extend([Wait(30), Done(2)]);
        super::script::words(&super::script::play(hedging(), &steps))
    };
    assert!(late(2).iter().any(|word| word.contains("copy")), "{:?}", late(2));
    assert!(!late(3).iter().any(|word| word.contains("copy")), "{:?}", late(3));
}

#[test]
fn failures_in_a_row_eject() {
    let mut steps = vec![Join(1)];
    for id in 1..=3 {
        steps.extend([Query(id), Fail(1), Cancel(id)]);
    }
    steps.extend([Quiet, Query(9), Wait(300), Probe(1, true)]);
    let ejection = EjectionSettings { least_in_service: Fraction::percent(0), ..at_once() };
    let settings = PoolSettings { max_attempts: NonZeroU8::MIN, ejection, ..plain() };
    let world = super::script::play(settings, &steps);
    let words = super::script::words(&world);
    assert_eq!(words.len(), 2, "{words:?}");
    assert!(words[0].ends_with("probe 1") && words[1].ends_with("run 9 on 1"), "{words:?}");
}

#[test]
fn a_change_of_policy_keeps_what_is_under_way() {
    let steps =
        [Join(1), Query(1), Query(2), Settings(Box::new(replicating(2))), Quiet, Join(2), Done(1), Done(2)];
    check(
        plain(),
        &steps,
        &["0 run 2 on 2", "0 answer 1 exact", "0 copy 2 on 1", "0 answer 2 exact", "0 drop 2 on 1"],
    );
}

#[test]
fn a_model_that_is_unloaded_answers_what_runs_and_is_forgotten() {
    let steps = [Join(1), Query(1), Query(2), Quiet, Unload, Wait(5), Done(1)];
    check(plain(), &steps, &["0 answer 2 NoInstance", "5 answer 1 exact"]);
    assert_eq!(play(plain(), &steps).dispatcher.status(POOL), None);
}

#[test]
fn query_for_an_unloaded_model_leaves_nothing_behind() {
    let late = [
        vec![Query(1), Wait(1000)],
        vec![Query(1), Cancel(1)],
        vec![Within(1, 10), Wait(10)],
        vec![Within(1, 0)],
    ];
    for late in late {
        let world = play(plain(), &[&[Join(1), Unload], &late[..]].concat());
        assert_eq!(world.dispatcher.status(POOL), None, "{late:?}");
    }
    let back = [Join(1), Unload, Query(1), Wait(10), Join(1), Done(1)];
    check(plain(), &back, &["10 run 1 on 1", "10 answer 1 exact"]);
    assert!(play(plain(), &back).dispatcher.status(POOL).is_some());
}
