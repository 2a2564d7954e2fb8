//! Outages while the fleet, the settings or a query's jobs change.

use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use parm_dispatch::{Accept, Action, Event, InstanceId, InstanceSpec, PoolId, QuerySpec, Role, Served, Site};
use parm_settings::{BudgetSettings, Fraction, InOutage, PolicyKind, PoolSettings};

use super::outage::exact_otherwise;
use super::script::Step::*;
use super::script::{Step, act, one_by_one, play, query, words};
use super::world::{POOL, World};

/// Run times are known and do not vary. Instances 1 to 3 have all models.
const FLEET: [Step; 6] = [Cost([25, 50, 100, 200]), Join(1), Warm(80), Join(2), Join(3), Quiet];

/// Each instance holds a job that it never ends.
const HANG: [Step; 3] = [Query(1), Query(2), Query(3)];

fn is_out(world: &World) -> bool {
    world.dispatcher.status(POOL).expect("the pool").in_outage
}

/// An instance that holds a job.
fn busy(world: &World) -> Option<u32> {
    world.running().map(|(_, held)| held.job.instance.0).next()
}

/// The instance apart answers all that it is given.
fn answer_apart(world: &mut World) {
    while world.running().any(|(_, held)| held.job.instance.0 == 9) {
        act(world, &Done(9));
        act(world, &Judged(Some(90)));
    }
}

fn runs(world: &World) -> usize {
    let runs = |(_, action): &&_| matches!(action, Action::Run(job, _) if job.role == Role::Deployed);
    world.log.iter().filter(runs).count()
}

#[test]
fn outage_begins_when_a_stand_in_joins_hung_instances() {
    let world = play(exact_otherwise(), &[&FLEET[..], &HANG, &[Wait(100), JoinApart(9), Wait(10)]].concat());
    assert!(is_out(&world), "{:?}", words(&world));
}

#[test]
fn outage_begins_again_when_its_stand_ins_return() {
    let steps = [Wait(50), Leave(9), JoinApart(9), Wait(10)];
    let world = play(exact_otherwise(), &[&FLEET[..], &[JoinApart(9)], &HANG, &steps].concat());
    assert!(is_out(&world), "{:?}", words(&world));
}

#[test]
fn outage_begins_when_settings_allow_it() {
    let mut fails = exact_otherwise();
    fails.stand_in.in_outage = InOutage::Fail;
    let steps = [Wait(100), Settings(Box::new(exact_otherwise())), Wait(10)];
    let world = play(fails, &[&FLEET[..], &[JoinApart(9)], &HANG, &steps].concat());
    assert!(is_out(&world), "{:?}", words(&world));
}

#[test]
fn outage_ends_when_settings_or_the_policy_end_it() {
    let mut fails = exact_otherwise();
    fails.stand_in.in_outage = InOutage::Fail;
    let hedges = PoolSettings { policy: PolicyKind::Hedge, ..one_by_one() };
    for other in [fails, hedges] {
        let mut world = play(exact_otherwise(), &[&FLEET[..], &[JoinApart(9)], &HANG, &[Wait(50)]].concat());
        assert!(is_out(&world));
        for step in [Settings(Box::new(other)), Quiet, Query(4), Wait(50)] {
            act(&mut world, &step);
        }
        assert!(!is_out(&world));
        assert!(!words(&world).iter().any(|word| word.contains("stand-in")), "{:?}", words(&world));
    }
}

#[test]
fn all_failing_instances_are_an_outage() {
    // Two of them are ejected, and the last one stays.
    let mut settings = exact_otherwise();
    settings.ejection.least_in_service = Fraction::percent(30);
    let mut world = play(settings, &[&FLEET[..], &[JoinApart(9)]].concat());
    let mut answered = 0;
    for id in 1..40 {
        act(&mut world, &Query(id));
        for _ in 0..20 {
            let failing = (1..=3).find(|on| world.running().any(|(_, held)| held.job.instance.0 == *on));
            let Some(failing) = failing else { break };
            act(&mut world, &Fail(failing));
        }
        act(&mut world, &Wait(10));
        if world.running().any(|(_, held)| held.job.instance.0 == 9) {
            act(&mut world, &Done(9));
            act(&mut world, &Judged(Some(90)));
            answered += 1;
        }
        act(&mut world, &Wait(10));
    }
    assert!(is_out(&world) && answered > 25, "{answered}: {:?}", words(&world));
}

#[test]
fn one_hung_job_is_enough_when_five_instances_give_no_token() {
    for (others, out) in [(5, true), (3, false)] {
        let warm = [Cost([25, 50, 100, 200]), Join(1), Warm(80), JoinApart(9)];
        let mut world = play(exact_otherwise(), &warm);
        for id in 2..2 + others {
            act(&mut world, &Join(id));
            world.send(Event::TokensOffered(InstanceId(id)));
        }
        for step in [Quiet, Query(1), Query(2), Wait(45)] {
            act(&mut world, &step);
        }
        assert_eq!(is_out(&world), out, "{others} others: {:?}", words(&world));
    }
}

#[test]
fn instance_that_others_fill_does_not_hide_an_outage() {
    let steps = [Elsewhere(3, 1, true), Query(1), Query(2), Wait(60)];
    let world = play(exact_otherwise(), &[&FLEET[..], &[JoinApart(9)], &steps].concat());
    assert!(is_out(&world), "{:?}", words(&world));
}

#[test]
fn burst_after_a_pause_is_no_outage() {
    let mut steps = FLEET.to_vec();
    steps.extend((4..=30).map(Join));
    steps.extend([JoinApart(99), Wait(5000)]);
    steps.extend((1..=30).map(Query));
    steps.push(Wait(35));
    let mut settings = exact_otherwise();
    settings.stand_in.spare = false;
    let world = play(settings, &steps);
    assert_eq!(runs(&world), 30);
    assert!(!is_out(&world), "no run is even two usual times old");
}

#[test]
fn query_returns_to_instances_when_its_stand_in_hangs() {
    let mut settings = exact_otherwise();
    settings.stand_in.bound = Fraction::percent(50);
    settings.stand_in.spare = false;
    let steps = [JoinApart(9), Query(1), Wait(24), Fail(2), Fail(3), Fail(1), Quiet, Wait(100)];
    let world = play(settings, &[&FLEET[..], &steps].concat());
    assert!(words(&world).iter().any(|word| word.contains("run 1 on")), "{:?}", words(&world));
}

#[test]
fn attempts_are_bounded_when_no_stand_in_is_free() {
    let mut settings = exact_otherwise();
    settings.stand_in.bound = Fraction::percent(50);
    settings.stand_in.spare = false;
    settings.stand_in.late_budget = BudgetSettings { ratio: Fraction::percent(0), burst: 0 };
    let most = usize::from(settings.max_attempts.get());
    // The instance apart holds the stand-in of another query, and hangs.
    let mut world =
        play(settings, &[&FLEET[..], &[JoinApart(9), Query(9), Wait(24), Done(2), Quiet, Query(1)]].concat());
    for _ in 0..100 {
        for on in 1..=3 {
            if world.running().any(|(_, held)| held.job.instance.0 == on) {
                act(&mut world, &Fail(on));
            }
        }
        act(&mut world, &Wait(5));
    }
    assert!(runs(&world) <= most + 1, "{:?}", words(&world));
}

#[test]
fn kept_stand_in_answers_at_once_when_all_attempts_failed() {
    let mut settings = exact_otherwise();
    settings.stand_in.bound = Fraction::percent(50);
    let mut world = play(settings, &[&FLEET[..], &[JoinApart(9), Query(1), Done(3)]].concat());
    while let Some(on) = busy(&world) {
        act(&mut world, &Fail(on));
    }
    assert!(words(&world).contains(&"1600 judge 1".to_owned()), "{:?}", words(&world));
}

#[test]
fn silent_stand_in_is_no_attempt_when_an_outage_begins() {
    let settings = PoolSettings { max_attempts: NonZeroU8::MIN, ..exact_otherwise() };
    let steps = [JoinApart(9), Query(1), Query(2), Wait(60)];
    let world = play(settings, &[&FLEET[..], &steps].concat());
    assert!(words(&world).contains(&"1600 stand-in 1 on 3".to_owned()), "{:?}", words(&world));
    assert!(words(&world).iter().any(|word| word.ends_with("late stand-in 1 on 9")), "{:?}", words(&world));
}

#[test]
fn unsure_query_is_refused_in_an_outage_when_none_returns() {
    let mut world = play(exact_otherwise(), &[&FLEET[..], &[JoinApart(9)], &HANG, &[Wait(50)]].concat());
    answer_apart(&mut world);
    // The timer of the first queries finds it at its stand-in.
    for step in [Wait(288), Query(4), Wait(4), Done(9), Judged(None), Wait(350)] {
        act(&mut world, &step);
    }
    assert!(words(&world).iter().any(|word| word.ends_with("answer 4 NoInstance")), "{:?}", words(&world));
}

#[test]
fn withheld_stand_ins_bridge_no_outage() {
    let mut settings = exact_otherwise();
    settings.stand_in.agreement.window = NonZeroU32::new(2).expect("positive");
    let mut world = play(settings, &[&FLEET[..], &[JoinApart(9)]].concat());
    for id in 1..=2 {
        act(&mut world, &Query(id));
        while let Some(on) = busy(&world) {
            act(&mut world, &Done(on));
        }
    }
    // The comparisons come late.
    [Leave(1), Leave(2), Leave(3)].iter().for_each(|step| act(&mut world, step));
    assert!(is_out(&world));
    act(&mut world, &Checked(false));
    assert!(world.dispatcher.status(POOL).expect("the pool").withheld && !is_out(&world));
}

#[test]
fn refused_late_query_still_gets_a_stand_in_apart() {
    let mut settings = PoolSettings { stand_in: Default::default(), ..exact_otherwise() };
    (settings.stand_in.spare, settings.stand_in.hedge) = (false, false);
    settings.stand_in.late_budget = BudgetSettings { ratio: Fraction::percent(0), burst: 0 };
    let steps = [JoinApart(9), Quiet, Query(1), Query(2), Wait(24), Done(9), Judged(Some(90))];
    let world = play(settings, &[&FLEET[..], &steps].concat());
    let late: Vec<_> = words(&world).into_iter().filter(|word| word.contains("late stand-in")).collect();
    assert_eq!(late, ["1623 late stand-in 1 on 9", "1624 late stand-in 2 on 9"]);
}

#[test]
fn stand_ins_run_only_apart_in_an_outage() {
    let mut world = play(exact_otherwise(), &[&FLEET[..], &[JoinApart(9)], &HANG, &[Wait(50)]].concat());
    assert!(is_out(&world));
    answer_apart(&mut world);
    // The jobs end without an answer, and the next ones hang again.
    for step in [Fail(1), Fail(2), Fail(3), Quiet] {
        act(&mut world, &step);
    }
    for id in 4..8 {
        act(&mut world, &Query(id));
        act(&mut world, &Wait(1));
    }
    let elsewhere = |word: &String| word.contains("stand-in") && !word.ends_with("on 9");
    assert!(!words(&world).iter().any(elsewhere), "{:?}", words(&world));
}

#[test]
fn query_that_left_the_queue_is_not_lost_when_an_outage_begins() {
    let mut settings = exact_otherwise();
    settings.stand_in.bound = Fraction::percent(50);
    settings.stand_in.spare = false;
    let steps =
        [Exact(1), Exact(2), Exact(3), Query(4), Wait(24), Done(1), JoinApart(9), Elsewhere(9, 1, true)];
    let mut world = play(settings, &[&FLEET[..], &steps].concat());
    assert!(words(&world).iter().any(|word| word.ends_with("late stand-in 4 on 1")), "{:?}", words(&world));
    for step in [Drain(1), Drain(2), Drain(3), Elsewhere(9, 0, true), Done(9), Judged(Some(90))] {
        act(&mut world, &step);
    }
    assert!(words(&world).iter().any(|word| word.ends_with("answer 4 stand-in")), "{:?}", words(&world));
}

#[test]
fn outage_begins_when_jobs_of_another_model_hang() {
    let other = PoolId(1);
    let mut settings = exact_otherwise();
    settings.stand_in.spare = false;
    let mut world = play(settings, &[Cost([25, 50, 100, 200])]);
    let join = |world: &mut World, id| {
        let serves = vec![Served::all(POOL), Served::all(other)];
        let spec = InstanceSpec { serves, slots: 1, site: Site::default(), learns: false };
        world.send(Event::InstanceJoined(InstanceId(id), spec));
    };
    let ask = |world: &mut World, id| {
        let asked = query(id, world.now + Duration::from_secs(60));
        world.send(Event::QueryArrived(QuerySpec { pool: other, ..asked }));
    };
    join(&mut world, 1);
    act(&mut world, &Warm(80));
    for id in 100..180 {
        ask(&mut world, id);
        act(&mut world, &Wait(20));
        act(&mut world, &Done(1));
    }
    [2, 3].into_iter().for_each(|id| join(&mut world, id));
    act(&mut world, &JoinApart(9));
    (1..=3).for_each(|id| ask(&mut world, id));
    for step in [Wait(100), Quiet, Query(10), Wait(10)] {
        act(&mut world, &step);
    }
    assert!(is_out(&world), "no instance answers: {:?}", words(&world));
    assert_eq!(busy_with(&world, 9), [10]);
}

/// The queries of the job that an instance holds.
fn busy_with(world: &World, instance: u32) -> Vec<u64> {
    let held = world.running().find(|(_, held)| held.job.instance.0 == instance);
    held.map_or(Vec::new(), |(_, held)| held.rows.iter().map(|query| query.0).collect())
}

#[test]
fn query_with_waiting_copy_is_refused_when_its_instance_leaves() {
    let mut settings = exact_otherwise();
    (settings.stand_in.spare, settings.stand_in.hedge) = (false, true);
    let mut world = play(settings, &[&FLEET[..], &[JoinApart(9)]].concat());
    let asked = query(1, world.now + Duration::from_secs(60));
    world.send(Event::QueryArrived(QuerySpec { accept: Accept::Exact, ..asked }));
    let holder = busy(&world).expect("it runs");
    // Its copy waits for the two others, which hang as well. The grace passes while its own instance may still answer.
    for step in [Wait(10), Query(2), Query(3), Wait(590)] {
        act(&mut world, &step);
    }
    assert!(is_out(&world), "{:?}", words(&world));
    for step in [Quiet, Leave(holder), Wait(301)] {
        act(&mut world, &step);
    }
    let said = words(&world);
    assert!(said.iter().any(|word| word.ends_with("answer 1 NoInstance")), "it waits for nothing: {said:?}");
}

#[test]
fn shorter_grace_holds_for_queries_that_wait_already() {
    let patient = PoolSettings { no_instance_grace: Duration::from_secs(600), ..exact_otherwise() };
    let mut world = play(patient, &FLEET);
    [Leave(1), Leave(2), Leave(3)].iter().for_each(|step| act(&mut world, step));
    world.send(Event::QueryArrived(query(1, world.now + Duration::from_secs(60))));
    for step in [Settings(Box::new(exact_otherwise())), Wait(301)] {
        act(&mut world, &step);
    }
    assert!(words(&world).iter().any(|word| word.ends_with("answer 1 NoInstance")), "{:?}", words(&world));
}

#[test]
fn ejected_stand_in_is_probed_soon_when_no_instance_is_left() {
    let settings = PoolSettings { no_instance_grace: Duration::from_secs(5), ..exact_otherwise() };
    let gone = [JoinApart(9), Leave(1), Leave(2), Leave(3)];
    let mut world = play(settings, &[&FLEET[..], &gone].concat());
    for id in [1, 2] {
        [Query(id), Wait(200), Cancel(id), Fail(9)].iter().for_each(|step| act(&mut world, step));
    }
    // The wait for a probe doubles, up to two seconds.
    for wait in [300, 600, 1200] {
        [Wait(wait), Probe(9, false)].iter().for_each(|step| act(&mut world, step));
    }
    [Quiet, Within(3, 5000), Wait(300)].iter().for_each(|step| act(&mut world, step));
    assert!(words(&world).iter().any(|word| word.ends_with("probe 9")), "{:?}", words(&world));
    act(&mut world, &Probe(9, true));
    assert!(words(&world).iter().any(|word| word.ends_with("late stand-in 3 on 9")), "{:?}", words(&world));
}

#[test]
fn failing_stand_in_leaves_queries_to_the_other_in_an_outage() {
    let gone = [JoinApart(8), JoinApart(9), Leave(1), Leave(2), Leave(3)];
    let mut world = play(exact_otherwise(), &[&FLEET[..], &gone].concat());
    let at = |world: &World, on| world.running().any(|(_, held)| held.job.instance.0 == on);
    // Two queries come at a time. One instance fails whatever it gets, the other takes 5 ms for each.
    for id in (0..40).step_by(2) {
        [Query(id), Query(id + 1)].iter().for_each(|step| act(&mut world, step));
        for _ in 0..2 {
            while at(&world, 9) {
                act(&mut world, &Fail(9));
            }
            act(&mut world, &Wait(5));
            if at(&world, 8) {
                [Done(8), Judged(Some(90))].iter().for_each(|step| act(&mut world, step));
            }
        }
    }
    act(&mut world, &Wait(400));
    let said = words(&world);
    let answered = said.iter().filter(|word| word.contains("answer") && word.ends_with("stand-in")).count();
    assert!(answered >= 38, "{answered}: {said:?}");
}
