//! What the dispatcher does, situation by situation.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::time::Duration;

use parm_dispatch::{
    Action, BatchSettings, BudgetSettings, EjectionSettings, Event, Fraction, HedgeSettings, InstanceId,
    PolicyKind, PoolSettings, ReplicateSettings, StandInSettings,
};

use super::script::Step::{self, *};
use super::script::{check, play, play_ahead, words};
use super::world::{Fate, POOL, World};

fn plain() -> PoolSettings {
    PoolSettings { policy: PolicyKind::None, ejection: at_once(), ..PoolSettings::default() }
}

fn hedging() -> PoolSettings {
    PoolSettings { policy: PolicyKind::Hedge, ejection: at_once(), ..PoolSettings::default() }
}

/// Who joins gets its share at once, so that who comes next is plain.
fn at_once() -> EjectionSettings {
    EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() }
}

fn replicating(copies: u8) -> PoolSettings {
    let copies = NonZeroU8::new(copies).expect("positive");
    PoolSettings {
        policy: PolicyKind::Replicate,
        replicate: ReplicateSettings { copies },
        ..PoolSettings::default()
    }
}

fn batching(size: u16, delay_ms: u64) -> PoolSettings {
    let max_size = NonZeroU16::new(size).expect("positive");
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

/// What runs of twenty queries at one instance, after so many that took no time at all.
fn ahead(settings: PoolSettings, before: u64) -> usize {
    let quick = (1..=before).flat_map(|query| [Query(query), Done(1)]);
    let steps: Vec<_> =
        [Join(1)].into_iter().chain(quick).chain([Quiet]).chain((101..=120).map(Query)).collect();
    words(&play_ahead(settings, &steps)).len()
}

#[test]
fn an_instance_of_a_fast_model_is_given_several_at_a_time() {
    let given = PoolSettings { ahead: Duration::from_millis(1), ..plain() };
    assert_eq!(ahead(given.clone(), 15), 1, "its times are not known yet");
    assert_eq!(ahead(given.clone(), 16), 16);
    let apart = PoolSettings { policy: PolicyKind::Replicate, ..given.clone() };
    assert_eq!(ahead(apart, 16), 1, "copies are to be elsewhere");
    assert_eq!(ahead(PoolSettings { ahead: Duration::ZERO, ..given.clone() }, 16), 1);
    let off = StandInSettings { hedge: false, ..StandInSettings::default() };
    let unseen = PoolSettings { policy: PolicyKind::StandIn, stand_in: off, ..given.clone() };
    assert_eq!(ahead(unseen, 16), 1, "nobody would look whether they are late");
    let slow = [Join(1), Warm(16), Quiet, Query(101), Query(102)];
    assert_eq!(words(&play_ahead(given, &slow)), ["320 run 101 on 1"], "a model of 20 ms");
}

#[test]
fn what_a_silent_instance_was_given_ahead_of_time_goes_to_others() {
    let budget = BudgetSettings { ratio: Fraction::percent(0), burst: 1 };
    let hedge = HedgeSettings { budget, ..HedgeSettings::default() };
    let hedging =
        PoolSettings { policy: PolicyKind::Hedge, ahead: Duration::from_millis(1), hedge, ..plain() };
    let quick = (1..=64).flat_map(|query| [Query(query), Done(1)]);
    let held = [Query(101), Query(102), Query(103), Join(2), Quiet, Wait(1), Done(2), Done(2), Done(2)];
    let steps: Vec<_> = [Join(1)].into_iter().chain(quick).chain(held).collect();
    let world = play_ahead(hedging.clone(), &steps);
    assert_eq!(moved(&world), 2);
    let expected = [
        "1 copy 101 on 2", // by the only hedge that is allowed
        "1 copy 102 on 2",
        "1 copy 103 on 2",
        "1 answer 101 hedged",
        "1 drop 101 on 1",
        "1 answer 102 hedged",
        "1 drop 102 on 1",
        "1 answer 103 hedged",
        "1 drop 103 on 1",
    ];
    assert_eq!(words(&world), expected);
    // It holds more than one and gets none, until it does something again.
    let next = [Quiet, Query(104), Query(105), Done(1), Query(106)];
    let next: Vec<_> = steps.iter().cloned().chain(next).collect();
    let expected = ["1 run 104 on 2", "1 run 105 on 2", "1 run 106 on 1"];
    assert_eq!(words(&play_ahead(hedging.clone(), &next)), expected);
    let patient = PoolSettings { ahead: Duration::from_millis(5), ..hedging };
    assert_eq!(moved(&play_ahead(patient, &steps[..steps.len() - 2])), 0, "it may yet be at work");
}

/// Hedges cost more than there is, and are not late before this.
fn late_after(delay: Duration, ahead: Duration) -> PoolSettings {
    let budget = BudgetSettings { ratio: Fraction::percent(0), burst: 0 };
    let hedge = HedgeSettings { budget, min_delay: delay, ..HedgeSettings::default() };
    PoolSettings { policy: PolicyKind::Hedge, ahead, hedge, ..plain() }
}

/// Instance 1 has answered so many queries that took no time, and then this happens.
fn after_quick(queries: u64, then: &[Step]) -> Vec<Step> {
    let quick = (1..=queries).flat_map(|query| [Query(query), Done(1)]);
    [Join(1)].into_iter().chain(quick).chain(then.iter().cloned()).collect()
}

fn moved(world: &World) -> u64 {
    world.dispatcher.status(POOL).expect("it has been used").counters.moved
}

#[test]
fn what_waits_behind_a_hang_that_follows_an_answer_is_moved_too() {
    let ms = Duration::from_millis;
    let held = [Query(101), Query(102), Query(103), Join(2), Wait(1), Done(1), Wait(500)];
    assert_eq!(moved(&play_ahead(late_after(ms(2), ms(2)), &after_quick(64, &held))), 1);
    let drained = [Query(101), Query(102), Query(103), Join(2), Drain(1), Wait(50)];
    assert_eq!(moved(&play_ahead(late_after(ms(1), ms(1)), &after_quick(64, &drained))), 2);
}

#[test]
fn one_pause_is_one_bad_answer_however_much_was_given_ahead() {
    let slow = [Query(101), Query(102), Join(2), Wait(20), Done(1), Done(1)];
    let failing = [Query(101), Query(102), Query(103), Join(2), Fail(1), Fail(1), Fail(1)];
    for held in [&slow[..], &failing] {
        let world = play_ahead(plain(), &after_quick(64, held));
        assert!(!world.log.iter().any(|(_, action)| matches!(action, Action::Ejected(..))), "{held:?}");
    }
}

#[test]
fn what_was_moved_to_an_instance_that_hangs_too_is_moved_again() {
    let then: Vec<_> = [Join(2), Query(65), Done(2)]
        .into_iter()
        .chain((101..=108).map(Query))
        .chain([Join(3), Wait(10)])
        .collect();
    let mut world = play_ahead(hedging(), &after_quick(64, &then));
    let next = |world: &World| {
        world.running().find(|(_, held)| held.job.instance == InstanceId(3)).map(|(job, _)| *job)
    };
    for _ in 0..50 {
        while let Some(job) = next(&world) {
            world.send(Event::JobCompleted(job));
        }
        world.advance(Duration::from_millis(1));
    }
    let open = world.queries.values().filter(|tracked| tracked.fate == Fate::Waiting).count();
    assert!(open <= 2, "{open} wait at two that hang, beside one that is idle");
}

#[test]
fn a_frontend_that_was_away_itself_takes_nobody_for_silent() {
    let then: Vec<_> = (101..=108).map(Query).chain([Join(2)]).collect();
    let mut world = play_ahead(hedging(), &after_quick(64, &then));
    world.now = world.now + Duration::from_millis(5); // the answers are there, unread
    let job = *world.running().next().expect("one of eight").0;
    world.send(Event::JobCompleted(job));
    assert_eq!(moved(&world), 0);
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
fn the_default_answer_is_given_at_the_deadline_where_there_is_one() {
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
fn what_a_lost_instance_held_runs_elsewhere() {
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
    // 2 is served before the replica of 1; the replica of 1 is useless by the time that there is room.
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
fn who_was_out_for_slowness_is_warm_and_who_failed_is_spared_at_first() {
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
fn a_slow_instance_is_kept_when_the_others_could_not_do_without_it() {
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
fn what_is_late_because_of_the_queue_is_not_duplicated() {
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
fn a_query_for_a_model_that_was_just_unloaded_leaves_nothing_behind() {
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
