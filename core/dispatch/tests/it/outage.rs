//! Stand-ins on instances without the deployed model, in outages and otherwise.

use std::collections::BTreeMap;
use std::time::Duration;

use parm_dispatch::{Event, Failure, InstanceSpec, JobId, Role, Served, Site, Time};
use parm_settings::{BudgetSettings, Fraction, InOutage, PolicyKind, PoolSettings};

use super::rescue::standing;
use super::script::Step::*;
use super::script::{Step, act, check, judge, one_by_one, play, words};
use super::world::POOL;

/// Clients get approximate answers in outages only.
pub(crate) fn exact_otherwise() -> PoolSettings {
    let mut settings = PoolSettings { policy: PolicyKind::StandIn, ..one_by_one() };
    settings.ejection.slow_start = Duration::ZERO;
    settings.stand_in.bound = Fraction::percent(0);
    settings.stand_in.hedge = false;
    settings.no_instance_grace = Duration::from_millis(300);
    settings
}

/// Run times are known and do not vary. Instances 1 to 3 have all models, 9 has only the stand-in.
const WARM: [Step; 7] = [Cost([25, 50, 100, 200]), Join(1), Warm(80), Join(2), Join(3), JoinApart(9), Quiet];

#[track_caller]
fn check_warm(settings: PoolSettings, steps: &[Step], expect: &[&str]) {
    check(settings, &[&WARM, steps].concat(), expect);
}

#[test]
fn late_query_gets_its_stand_in_apart_from_the_deployed_model() {
    let settings = PoolSettings { stand_in: Default::default(), ..exact_otherwise() };
    let steps = [Query(1), Query(2), Query(3), Done(2), Quiet, Wait(24), Done(9), Judged(Some(90))];
    // No instance with the deployed model has to be free, and no budget has to pay for it.
    let mut late = settings.clone();
    (late.stand_in.spare, late.stand_in.hedge) = (false, false);
    late.stand_in.late_budget = BudgetSettings { ratio: Fraction::percent(0), burst: 0 };
    check_warm(
        late,
        &steps,
        &[
            "1623 late stand-in 2 on 9",
            "1624 judge 2",
            "1624 late stand-in 3 on 9",
            "1624 answer 2 stand-in",
            "1624 drop 2 on 3",
        ],
    );
}

#[test]
fn punctual_query_gets_no_stand_in_apart() {
    let settings = PoolSettings { stand_in: Default::default(), ..exact_otherwise() };
    let alone = [Cost([25, 50, 100, 200]), Join(1), Warm(80), JoinApart(9), Quiet, Query(1), Wait(19)];
    check(settings, &alone, &["1600 run 1 on 1"]);
}

#[test]
fn query_is_not_held_up_by_one_that_runs_at_the_instance_apart() {
    let mut settings = PoolSettings { stand_in: Default::default(), ..exact_otherwise() };
    (settings.stand_in.spare, settings.stand_in.hedge) = (false, false);
    let fleet = [Cost([25, 50, 100, 200]), Join(1), Warm(80), Join(2), Quiet, Query(1), Query(2)];
    let mut world = play(settings, &fleet);
    let holder = world.running().find(|(_, held)| held.rows[0].0 == 1).expect("it runs").1.job.instance;
    // It lost the deployed model and has a free slot.
    let spec =
        InstanceSpec { serves: vec![Served::stand_in(POOL)], slots: 2, site: Site::default(), learns: false };
    world.send(Event::InstanceJoined(holder, spec));
    act(&mut world, &Wait(30));
    let last = words(&world).pop().expect("an action");
    assert!(last.ends_with(&format!("late stand-in 2 on {}", holder.0)), "{last}");
    act(&mut world, &Cancel(1));
}

#[test]
fn stand_ins_answer_at_once_when_all_instances_left() {
    let gone = [Leave(1), Leave(2), Leave(3), Query(1), Done(9), Judged(None)];
    let answered = ["1600 late stand-in 1 on 9", "1600 judge 1"].map(str::to_owned).to_vec();
    let world = play(exact_otherwise(), &[&WARM, &gone[..]].concat());
    assert_eq!(words(&world), answered, "unfit answers are not given");
    let gone = [Leave(1), Leave(2), Leave(3), Query(1), Done(9), Judged(Some(90)), Quiet, Join(4), Query(2)];
    let world = play(exact_otherwise(), &[&WARM, &gone[..]].concat());
    assert_eq!(words(&world), ["1600 run 2 on 4"]);
    let status = world.dispatcher.status(POOL).expect("the pool");
    assert_eq!((status.counters.stand_ins_outage, status.in_outage), (1, false), "over with an instance");
}

#[test]
fn stand_in_answers_a_query_that_failed_as_often_as_allowed() {
    let mut settings = exact_otherwise();
    settings.stand_in.bound = Fraction::percent(50);
    (settings.stand_in.spare, settings.stand_in.late) = (false, false);
    let failed = [Query(1), Fail(2), Fail(3), Fail(1), Wait(4), Done(9), Judged(Some(90))];
    let world = play(settings.clone(), &[&WARM, &failed[..]].concat());
    let said = words(&world);
    assert_eq!(
        said[said.len() - 3..],
        ["1600 late stand-in 1 on 9", "1604 judge 1", "1604 answer 1 stand-in"]
    );
    // A stand-in that hangs leaves it to the deployed model again.
    let failed = [Query(1), Fail(2), Fail(3), Fail(1), Leave(9), Wait(20)];
    let world = play(settings, &[&WARM, &failed[..]].concat());
    assert!(
        words(&world).last().is_some_and(|word| word.starts_with("1600 run 1 on")),
        "{:?}",
        words(&world)
    );
}

#[test]
fn silent_instances_are_an_outage_after_two_usual_times() {
    let steps = [Query(1), Query(2), Query(3), Wait(10), Query(4), Wait(29), Wait(2)];
    let hung = play(exact_otherwise(), &[&WARM, &steps[..]].concat());
    let late: Vec<_> = words(&hung).into_iter().filter(|word| word.contains("late")).collect();
    assert_eq!(late, ["1640 late stand-in 1 on 9"]);
    // The first prediction ends it: the third stand-in is not given.
    let rest = [Done(9), Judged(Some(90)), Done(9), Judged(Some(90)), Done(1), Done(9)];
    let over = play(exact_otherwise(), &[&WARM, &steps[..], &rest[..]].concat());
    let said = words(&over);
    let given = said.iter().filter(|word| word.ends_with("stand-in") && word.contains("answer")).count();
    assert_eq!(given, 2, "{said:?}");
    assert!(!over.dispatcher.status(POOL).expect("the pool").in_outage);
}

#[test]
fn slow_job_is_no_outage_when_another_instance_answers() {
    let steps = [
        Query(1),
        Query(2),
        Query(3),
        Quiet,
        Wait(20),
        Done(1),
        Query(4),
        Wait(20),
        Done(1),
        Query(5),
        Wait(19),
    ];
    let world = play(exact_otherwise(), &[&WARM, &steps[..]].concat());
    assert!(!words(&world).iter().any(|word| word.contains("stand-in")), "{:?}", words(&world));
}

#[test]
fn one_hung_instance_is_no_outage() {
    let alone = [Cost([25, 50, 100, 200]), Join(1), Warm(80), JoinApart(9), Quiet, Query(1), Wait(500)];
    let world = play(exact_otherwise(), &alone);
    assert!(!words(&world).iter().any(|word| word.contains("stand-in")), "{:?}", words(&world));
}

#[test]
fn query_waits_for_an_instance_when_outages_are_to_fail() {
    let mut settings = exact_otherwise();
    settings.stand_in.in_outage = InOutage::Fail;
    let wait = settings.no_instance_grace.as_millis() as u64;
    let gone = [Leave(1), Leave(2), Leave(3), Query(1), Wait(wait)];
    let refused = format!("{} answer 1 NoInstance", 1600 + wait);
    check_warm(settings, &gone, &[&refused]);
}

#[test]
fn exact_query_is_refused_in_an_outage_when_no_instance_returns() {
    let settings = exact_otherwise();
    let wait = settings.no_instance_grace.as_millis() as u64;
    let hung = [Query(1), Query(2), Query(3), Wait(45), Exact(4), Quiet, Wait(wait)];
    let world = play(settings, &[&WARM, &hung[..]].concat());
    let refused = format!("{} answer 4 NoInstance", 1645 + wait);
    assert!(words(&world).contains(&refused), "{:?}", words(&world));
}

#[test]
fn bound_has_all_its_room_after_an_outage() {
    let mut settings = exact_otherwise();
    settings.stand_in.bound = Fraction::percent(5);
    settings.stand_in.bound_window = std::num::NonZeroU32::new(20).expect("positive");
    let mut steps = [&WARM[..], &[Leave(1), Leave(2), Leave(3)]].concat();
    for id in 1..50 {
        steps.extend([Query(id), Done(9), Judged(Some(90))]);
    }
    steps.extend([Join(4), Quiet, Query(100), Wait(30), Done(9), Judged(Some(90))]);
    let world = play(settings, &steps);
    assert!(words(&world).iter().any(|word| word.ends_with("answer 100 stand-in")), "{:?}", words(&world));
}

/// The number of queries that fail in six seconds in which each run fails after so many milliseconds. Queries come at this
/// interval, and two instances apart hold the stand-in, which takes 5 ms.
fn failed_in_outage(every: u64, after: u64, probes_pass: bool) -> usize {
    let ms = Duration::from_millis;
    let joins = [Join(2), Join(3), JoinApart(4), JoinApart(5), Quiet];
    let mut world = play(standing(), &[&[Cost([25, 50, 100, 200]), Join(1), Warm(80)], &joins[..]].concat());
    let mut began: BTreeMap<JobId, Time> = BTreeMap::new();
    for at in 0..6000 {
        if at % every == 0 {
            act(&mut world, &Within(1 + at / every, 1000));
        }
        world.advance(ms(1));
        let running: Vec<_> = world.running().map(|(id, held)| (*id, held.job.role)).collect();
        for (job, role) in running {
            // It was seen first within a millisecond of its start.
            let age = world.now.since(*began.entry(job).or_insert(world.now));
            match role {
                Role::StandIn(_) if age >= ms(5) => world.send(Event::JobCompleted(job)),
                Role::StandIn(_) => {}
                _ if age + ms(1) >= ms(after) => world.send(Event::JobFailed(job, Failure::Instance)),
                _ => {}
            }
        }
        let probes: Vec<_> = world.probes.iter().copied().collect();
        probes.into_iter().for_each(|(id, pool)| world.send(Event::ProbeAnswered(id, pool, probes_pass)));
        judge(&mut world);
        act(&mut world, &Checked(true));
    }
    words(&world).iter().filter(|word| word.contains("answer") && word.ends_with("Failed")).count()
}

#[test]
fn stand_ins_bridge_an_outage_in_which_instances_fail_at_once() {
    for (every, after, probes_pass) in [(10, 1, false), (10, 3, false), (50, 3, false), (10, 3, true)] {
        let failed = failed_in_outage(every, after, probes_pass);
        assert!(failed < 20, "{failed} with a query each {every} ms, runs of {after} ms, {probes_pass}");
    }
}
