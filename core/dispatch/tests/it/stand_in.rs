//! The dispatcher's behaviour with stand-ins, situation by situation.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use parm_dispatch::{Event, InstanceId, Role, Settings, ShareId, Terms};
use parm_settings::{BudgetSettings, Fraction, PolicyKind, PoolSettings, StandInSettings, Unsure};

use super::script::Step::*;
use super::script::{Step, act, check, one_by_one, play, words};
use super::world::{POOL, World};

fn standing_in() -> PoolSettings {
    let mut settings = PoolSettings { policy: PolicyKind::StandIn, ..one_by_one() };
    // Without slow start, so that only idle instances matter.
    settings.ejection.slow_start = Duration::ZERO;
    settings
}

fn with(change: impl FnOnce(&mut StandInSettings)) -> PoolSettings {
    let mut settings = standing_in();
    change(&mut settings.stand_in);
    settings
}

/// Late stand-ins only, and no duplicates.
fn late() -> PoolSettings {
    with(|stand_in| (stand_in.spare, stand_in.hedge) = (false, false))
}

/// Times are known, a row costs a quarter of a query, and of three instances two will be idle.
const WARM: [Step; 6] = [Cost([25, 50, 100, 200]), Join(1), Warm(32), Join(2), Join(3), Quiet];

#[track_caller]
fn check_warm(settings: PoolSettings, steps: &[Step], expect: &[&str]) {
    check(settings, &[&WARM, steps].concat(), expect);
}

#[test]
fn spare_stand_in_runs_at_once_and_its_answer_is_held_back() {
    let steps = [Query(1), Wait(5), Done(3), Wait(15), Done(2), Checked(true), Wait(100)];
    check_warm(
        standing_in(),
        &steps,
        &["640 run 1 on 2", "640 stand-in 1 on 3", "660 answer 1 exact", "660 check 1"],
    );
}

#[test]
fn late_query_gets_stand_in_and_late_prediction_is_compared() {
    let steps = [Query(1), Wait(5), Done(3), Wait(20), Judged(Some(90)), Wait(50), Done(2), Checked(true)];
    check_warm(
        standing_in(),
        &steps,
        &[
            "640 run 1 on 2",
            "640 stand-in 1 on 3",
            "663 judge 1",
            "665 answer 1 stand-in",
            "665 drop 1 on 2",
            "715 check 1",
        ],
    );
}

#[test]
fn late_stand_in_is_compared_with_the_prediction() {
    let steps = [Query(1), Wait(20), Done(2), Wait(1), Done(3), Checked(false)];
    check_warm(
        standing_in(),
        &steps,
        &["640 run 1 on 2", "640 stand-in 1 on 3", "660 answer 1 exact", "660 drop 1 on 3", "661 check 1"],
    );
}

#[test]
fn a_late_query_goes_before_everything_that_waits() {
    let steps =
        [Query(1), Query(2), Query(3), Query(4), Quiet, Wait(24), Done(3), Wait(5), Done(3), Judged(None)];
    // The fourth has waited too long since 643 ms, the others are late since 663.
    check_warm(
        late(),
        &steps,
        &["664 answer 2 exact", "664 late stand-in 4 on 3", "669 judge 4", "669 late stand-in 1 on 3"],
    );
}

#[test]
fn a_query_that_still_waits_may_be_answered_by_its_stand_in() {
    let steps =
        [Query(1), Query(2), Query(3), Wait(22), Query(4), Quiet, Wait(30), Done(2), Wait(5), Done(2)];
    let words = words(&play(late(), &[&WARM[..], &steps].concat()));
    assert_eq!(words[0], "692 answer 1 exact");
    assert!(words[1].starts_with("692 late stand-in"), "{words:?}");
}

#[test]
fn stand_ins_of_a_backlog_are_compared_with_predictions() {
    let queries: Vec<Step> = (1..=20).map(Query).collect();
    let mut world = play(late(), &[&WARM[..], &queries, &[Wait(60), Quiet, Join(4)]].concat());
    let judged = |world: &World| words(world).iter().filter(|word| word.contains("judge")).count();
    for _ in 0..12 {
        let before = judged(&world);
        act(&mut world, &Done(4));
        for _ in before..judged(&world) {
            act(&mut world, &Judged(Some(90)));
        }
        act(&mut world, &Wait(1));
    }
    let (words, given) = (words(&world), |word: &str| word.contains("answer") && word.contains("stand-in"));
    let count = |is_one: &dyn Fn(&str) -> bool| words.iter().filter(|word| is_one(word)).count();
    // Every other query gets both, as long as few are compared. Its run goes before the stand-ins of others.
    assert_eq!((count(&given), count(&|word| word.contains("check"))), (4, 4), "{words:?}");
}

#[test]
fn exact_clients_are_hedged_and_get_no_stand_in() {
    check_warm(standing_in(), &[Exact(1), Wait(30)], &["640 run 1 on 2", "665 copy 1 on 3"]);
}

#[test]
fn hedging_pool_starts_no_stand_in() {
    let steps = [Hedged(Box::new(standing_in())), Query(1), Wait(30)];
    check_warm(standing_in(), &steps, &["640 run 1 on 2", "665 copy 1 on 3"]);
}

#[test]
fn a_pool_that_hedged_stands_in_once_it_may() {
    let steps = [Hedged(Box::new(standing_in())), Settings(Box::new(standing_in())), Query(1)];
    check_warm(standing_in(), &steps, &["640 run 1 on 2", "640 stand-in 1 on 3"]);
}

#[test]
fn query_that_waited_too_long_is_left_to_its_stand_in() {
    // It would wait longer if the bound were used up; here it is unused. 23 ms are late, so after 3 ms of waiting
    // 20 are too long.
    let steps = [Query(1), Query(2), Query(3), Wait(2), Query(4), Quiet, Wait(4), Done(2), Wait(5), Done(2)];
    let after = |steps: &[Step]| words(&play(late(), &[&WARM[..], steps].concat()));
    let words = after(&steps);
    assert!(words[1].starts_with("646 late stand-in 4 on 2"), "{words:?}");
    let soon = [Query(1), Query(2), Query(3), Wait(4), Query(4), Quiet, Wait(2), Done(2)];
    let words = after(&soon);
    assert!(words[1].starts_with("646 run 4 on 2"), "{words:?}");
}

#[test]
fn query_at_a_slow_instance_gets_the_last_idle_instance() {
    let after = |steps: &[Step]| {
        let warm = [Step::Cost([25, 50, 100, 200]), Join(1), Warm(32), Join(2), Quiet];
        words(&play(with(|stand_in| stand_in.hedge = false), &[&warm[..], steps].concat()))
    };
    // One of two instances stays idle for arriving queries.
    let round = [Exact(1), Wait(20), Done(2), Query(2), Wait(20), Done(1), Quiet, Query(3)];
    assert_eq!(after(&round), ["680 run 3 on 2"]);
    let slow = [Exact(1), Wait(100), Done(2), Query(2), Wait(20), Done(1), Quiet, Query(3)];
    assert_eq!(after(&slow), ["760 run 3 on 2", "760 stand-in 3 on 1"]);
}

#[test]
fn regular_traffic_pairs_each_instance_with_several_others() {
    let joins: Vec<Step> = (1..=5).map(Join).collect();
    let mut world =
        play(standing_in(), &[&[Cost([25, 50, 100, 200]), Join(1), Warm(32)], &joins[1..]].concat());
    let mut pairs = BTreeSet::new();
    for id in 0..200 {
        act(&mut world, &Query(id));
        let on = |role: fn(&Role) -> bool| {
            world.running().find(|(_, held)| role(&held.job.role)).map(|(id, held)| (*id, held.job.instance))
        };
        let prediction = on(|role| *role == Role::Deployed).unwrap();
        let stand_in = on(|role| matches!(role, Role::StandIn(_))).unwrap();
        pairs.insert((prediction.1, stand_in.1));
        for (wait, job) in [(5, stand_in.0), (15, prediction.0)] {
            world.advance(Duration::from_millis(wait));
            world.send(Event::JobCompleted(job));
        }
        act(&mut world, &Checked(true));
    }
    let partners = |id| pairs.iter().filter(|(runs, _)| *runs == InstanceId(id)).count();
    assert!((1..=5).all(|id| partners(id) >= 3), "{pairs:?}");
}

#[test]
fn nothing_is_duplicated_while_queries_wait() {
    let steps = |waiting: u64| {
        let waiting: Vec<Step> = (10..10 + waiting).map(Exact).collect();
        let copies =
            [&WARM[..], &[Exact(1), Exact(2), Exact(3)], &waiting, &[Quiet, Wait(30), Done(2)]].concat();
        words(&play(standing_in(), &copies)).iter().filter(|word| word.contains("copy")).count()
    };
    assert_eq!((steps(0), steps(3)), (1, 0));
}

#[test]
fn instance_makes_no_stand_in_for_its_own_query() {
    let steps = [Join(1), Warm(32), Quiet, Query(1), Wait(100)];
    check(late(), &steps, &["640 run 1 on 1"]);
}

#[test]
fn rows_are_gathered_as_far_as_a_job_of_many_is_cheaper() {
    let steps = [Query(1), Query(2), Query(3), Quiet, Wait(24), Join(4)];
    let gathered = |cost| words(&play(late(), &[&WARM[..], &[Step::Cost(cost)], &steps].concat()));
    assert_eq!(gathered([25, 30, 35, 50]), ["664 late stand-in 1+2+3 on 4"]);
    assert_eq!(gathered([25, 50, 100, 200]), ["664 late stand-in 1 on 4"]);
}

#[test]
fn late_work_stays_within_its_budget() {
    let budget = BudgetSettings { ratio: Fraction::percent(0), burst: 1 };
    let settings = with(|stand_in| {
        (stand_in.spare, stand_in.hedge, stand_in.late_budget) = (false, false, budget);
    });
    let arrivals: Vec<Step> = (1..=3).map(Query).collect();
    let joins: Vec<Step> = (4..=9).map(Join).collect();
    let dear = [Cost([60, 120, 240, 480]), Quiet];
    let steps = [&WARM[..], &dear, &arrivals, &[Quiet, Wait(24)], &joins].concat();
    assert_eq!(words(&play(settings, &steps)), ["664 late stand-in 1 on 4"]);
}

#[test]
fn expensive_stand_in_leaves_more_instances_idle() {
    let first = |cost| {
        let words =
            words(&play(standing_in(), &[&WARM[..], &[Step::Cost(cost), Join(4), Query(1)]].concat()));
        words.iter().filter(|word| word.contains("stand-in")).count()
    };
    assert_eq!((first([10, 20, 40, 80]), first([100, 200, 400, 800])), (1, 0));
}

#[test]
fn no_more_than_the_bound_is_approximate() {
    let settings = with(|stand_in| {
        stand_in.bound = Fraction::percent(1);
        stand_in.bound_window = NonZeroU32::new(100).expect("positive");
        stand_in.hedge = false;
    });
    let late = |id| [Query(id), Wait(5), Done(3), Wait(20)];
    let steps = [&WARM[..], &late(1), &[Judged(None)]].concat();
    assert!(words(&play(settings.clone(), &steps)).contains(&"663 judge 1".to_owned()));
    let given = [&WARM[..], &late(1), &[Judged(Some(90)), Done(2), Checked(true), Quiet]].concat();
    // Work goes round, so the next query is on the third instance, and its stand-in on one of the others.
    let steps = [&given[..], &[Query(2), Wait(5), Done(1), Wait(30), Done(3)]].concat();
    let words = words(&play(settings, &steps));
    assert!(!words.iter().any(|word| word.contains("judge")), "{words:?}");
    assert!(words.last().is_some_and(|word| word.ends_with("check 2")), "{words:?}");
}

#[test]
fn clients_may_ask_for_fewer_approximations() {
    let steps = |share| [AtMost(1, share), Wait(5), Done(3), Wait(30)];
    let judged = |share| {
        let words = words(&play(standing_in(), &[&WARM[..], &steps(share)].concat()));
        words.iter().any(|word| word.contains("judge"))
    };
    // The first query of its kind has earned no approximation yet.
    assert!(!judged(10));
}

#[test]
fn an_unsure_stand_in_leads_to_a_hedge_or_to_patience() {
    let unsure =
        |then| with(|stand_in| (stand_in.min_confidence, stand_in.unsure) = (Fraction::percent(80), then));
    let steps = [Query(1), Wait(5), Done(3), Wait(19), Quiet, Judged(Some(70))];
    check_warm(unsure(Unsure::Hedge), &steps, &["664 copy 1 on 3"]);
    check_warm(unsure(Unsure::Wait), &steps, &[]);
}

#[test]
fn a_stand_in_that_is_lost_is_made_again() {
    let steps = [Query(1), Wait(24), Quiet, Fail(3)];
    let words = words(&play(with(|stand_in| stand_in.hedge = false), &[&WARM[..], &steps].concat()));
    assert!(words.len() == 1 && words[0].starts_with("664 late stand-in 1"), "{words:?}");
}

#[test]
fn a_late_query_is_stood_in_for_where_neighbours_are_busy_too() {
    let steps = [Query(1), Elsewhere(1, 2, true), Elsewhere(3, 1, true), Wait(100)];
    let said = words(&play(late(), &[&WARM[..], &steps].concat()));
    assert!(said.iter().any(|word| word.ends_with("late stand-in 1 on 3")), "{said:?}");
}

#[test]
fn idle_homes_of_neighbours_count_for_reservations() {
    let shares = [(ShareId(0), Terms { weight: 1.0, reserved: 1 })].into_iter().collect();
    let settings = PoolSettings { ahead: Duration::ZERO, ..late() };
    let mut world = World::new(Settings { shares, ..Settings::uniform(settings) }, 7);
    let steps = [Elsewhere(1, 0, false), Elsewhere(3, 0, false), Query(1), Wait(100)];
    [&WARM[..], &steps].concat().iter().for_each(|step| act(&mut world, step));
    let said = words(&world);
    assert!(said.iter().any(|word| word.contains("late stand-in 1 on")), "{said:?}");
}

#[test]
fn answer_counts_as_wasted_when_its_query_ends_without_one() {
    for end in [Cancel(1), Wait(2000)] {
        let mut settings = with(|stand_in| stand_in.bound = Fraction::percent(0));
        settings.stand_in.hedge = false;
        let world = play(settings, &[&WARM[..], &[Query(1), Wait(5), Done(3), end]].concat());
        let counters = world.dispatcher.status(POOL).expect("the pool").counters;
        assert_eq!(counters.stand_ins_wasted, 1, "{:?}", words(&world));
    }
}
