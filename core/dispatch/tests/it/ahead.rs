//! Batches queued ahead at instances of fast models, and their fate when an instance falls silent.

use std::time::Duration;

use parm_dispatch::{Action, Event, InstanceId, InstanceSpec, PoolId, QuerySpec, Served, Settings, Site};
use parm_settings::{
    BudgetSettings, EjectionSettings, Fraction, HedgeSettings, PolicyKind, PoolSettings, StandInSettings,
};

use super::script::Step::{self, *};
use super::script::{one_by_one, play_ahead, query, words};
use super::world::{Fate, POOL, World};

fn plain() -> PoolSettings {
    // Without slow start, so that the next instance is predictable.
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    PoolSettings { policy: PolicyKind::None, ejection, ..one_by_one() }
}

fn hedging() -> PoolSettings {
    PoolSettings { policy: PolicyKind::Hedge, ..plain() }
}

/// The running jobs of twenty queries at one instance, after this many that took no time.
fn held(settings: PoolSettings, before: u64) -> usize {
    let quick = (1..=before).flat_map(|query| [Query(query), Done(1)]);
    let steps: Vec<_> =
        [Join(1)].into_iter().chain(quick).chain([Quiet]).chain((101..=120).map(Query)).collect();
    words(&play_ahead(settings, &steps)).len()
}

#[test]
fn an_instance_of_a_fast_model_is_given_several_at_a_time() {
    let given = PoolSettings { ahead: Duration::from_millis(1), ..plain() };
    assert_eq!(held(given.clone(), 15), 1, "its times are not known yet");
    assert_eq!(held(given.clone(), 16), 16);
    let apart = PoolSettings { policy: PolicyKind::Replicate, ..given.clone() };
    assert_eq!(held(apart, 16), 1, "copies must run on another instance");
    assert_eq!(held(PoolSettings { ahead: Duration::ZERO, ..given.clone() }, 16), 1);
    let off = StandInSettings { hedge: false, ..StandInSettings::default() };
    let unseen = PoolSettings { policy: PolicyKind::StandIn, stand_in: off, ..given.clone() };
    assert_eq!(held(unseen, 16), 1, "no rule would check whether they are late");
    let slow = [Join(1), Warm(16), Quiet, Query(101), Query(102)];
    assert_eq!(words(&play_ahead(given, &slow)), ["320 run 101 on 1"], "a model of 20 ms");
}

#[test]
fn fast_model_queues_ahead_once_the_slow_one_is_unloaded() {
    let slow = PoolId(1);
    let settings = PoolSettings { ahead: Duration::from_millis(1), ..plain() };
    let mut world = World::new(Settings::uniform(settings), 7).given_ahead();
    let serves = [POOL, slow].map(Served::all).to_vec();
    let spec = InstanceSpec { serves, slots: 1, site: Site::default(), learns: false };
    world.send(Event::InstanceJoined(InstanceId(1), spec));
    let ask = |world: &mut World, pool, id| {
        let asked = query(id, world.now + Duration::from_secs(1));
        world.send(Event::QueryArrived(QuerySpec { pool, ..asked }));
    };
    let run = |world: &mut World, pool, id, took| {
        ask(world, pool, id);
        world.advance(Duration::from_millis(took));
        let job = *world.running().next().expect("the only query").0;
        world.send(Event::JobCompleted(job));
    };
    (1..=32).for_each(|id| run(&mut world, slow, id, 20));
    (101..=132).for_each(|id| run(&mut world, POOL, id, 0));
    (201..=220).for_each(|id| ask(&mut world, POOL, id));
    assert_eq!(world.running().count(), 1, "a run of the slow model must not wait behind several");
    world.send(Event::PoolRemoved(slow));
    assert_eq!(world.running().count(), 16);
}

#[test]
fn queued_batches_of_a_silent_instance_move() {
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
    // It holds more than one and gets none until it completes one.
    let next = [Quiet, Query(104), Query(105), Done(1), Query(106)];
    let next: Vec<_> = steps.iter().cloned().chain(next).collect();
    let expected = ["1 run 104 on 2", "1 run 105 on 2", "1 run 106 on 1"];
    assert_eq!(words(&play_ahead(hedging.clone(), &next)), expected);
    let patient = PoolSettings { ahead: Duration::from_millis(5), ..hedging };
    assert_eq!(moved(&play_ahead(patient, &steps[..steps.len() - 2])), 0, "it may yet be at work");
}

/// The hedge budget is 0, and no job is late before this.
fn late_after(delay: Duration, ahead: Duration) -> PoolSettings {
    let budget = BudgetSettings { ratio: Fraction::percent(0), burst: 0 };
    let hedge = HedgeSettings { budget, min_delay: delay };
    PoolSettings { policy: PolicyKind::Hedge, ahead, hedge, ..plain() }
}

/// Instance 1 answers this many queries that take no time, and then these events follow.
fn after_quick(queries: u64, then: &[Step]) -> Vec<Step> {
    let quick = (1..=queries).flat_map(|query| [Query(query), Done(1)]);
    [Join(1)].into_iter().chain(quick).chain(then.iter().cloned()).collect()
}

fn moved(world: &World) -> u64 {
    world.dispatcher.status(POOL).expect("it has been used").counters.moved
}

#[test]
fn queued_batches_move_when_a_hang_follows_an_answer() {
    let ms = Duration::from_millis;
    let held = [Query(101), Query(102), Query(103), Join(2), Wait(1), Done(1), Wait(500)];
    assert_eq!(moved(&play_ahead(late_after(ms(2), ms(2)), &after_quick(64, &held))), 1);
    let drained = [Query(101), Query(102), Query(103), Join(2), Drain(1), Wait(50)];
    assert_eq!(moved(&play_ahead(late_after(ms(1), ms(1)), &after_quick(64, &drained))), 2);
}

#[test]
fn pause_counts_once_however_many_jobs_are_queued_ahead() {
    let slow = [Query(101), Query(102), Join(2), Wait(20), Done(1), Done(1)];
    let failing = [Query(101), Query(102), Query(103), Join(2), Fail(1), Fail(1), Fail(1)];
    for held in [&slow[..], &failing] {
        let world = play_ahead(plain(), &after_quick(64, held));
        assert!(!world.log.iter().any(|(_, action)| matches!(action, Action::Ejected(..))), "{held:?}");
    }
}

#[test]
fn moved_batch_moves_again_when_its_new_instance_hangs() {
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
    assert!(open <= 2, "{open} queries wait at two hung instances while another is idle");
}

#[test]
fn hedge_behind_a_hung_job_moves_when_its_first_job_was_alone() {
    let ms = Duration::from_millis;
    let hedge = HedgeSettings { min_delay: ms(3), ..HedgeSettings::default() };
    let settings = PoolSettings { hedge, ahead: ms(2), ..hedging() };
    let quick = (101..=132).flat_map(|query| [Query(1000 + query), Query(query), Done(1), Done(2)]);
    // The queries run alone at instances 1 and 2, and their hedges behind each other at instance 3. All three hang.
    let then =
        [Quiet, Query(201), Wait(2), Query(202), Wait(2), Join(3), Wait(2), Quiet, Join(4), Wait(4), Done(4)];
    let then: Vec<_> = [Join(2)].into_iter().chain(quick).chain(then).chain([Wait(100), Done(4)]).collect();
    let answers = words(&play_ahead(settings, &after_quick(64, &then)));
    let answered = |query| answers.iter().any(|word| word.contains(&format!("answer {query} hedged")));
    assert!(answered(201) && answered(202), "{answers:?}");
}

#[test]
fn moved_query_runs_on_the_third_instance_when_two_hang() {
    // 101 runs at 1 and 102 waits behind it; 1 hangs. 2 answers 101, then hangs with 102.
    let then = [Query(101), Query(102), Join(2), Wait(3), Done(2), Wait(2), Join(3)];
    let mut world = play_ahead(hedging(), &after_quick(64, &then));
    let next = |world: &World| {
        world.running().find(|(_, held)| held.job.instance == InstanceId(3)).map(|(job, _)| *job)
    };
    for _ in 0..900 {
        while let Some(job) = next(&world) {
            world.send(Event::JobCompleted(job));
        }
        world.advance(Duration::from_millis(1));
    }
    let open = world.queries.values().filter(|tracked| tracked.fate == Fate::Waiting).count();
    assert_eq!(open, 0, "{:?}", words(&world));
}

#[test]
fn no_instance_counts_as_silent_when_the_frontend_paused() {
    let then: Vec<_> = (101..=108).map(Query).chain([Join(2)]).collect();
    let mut world = play_ahead(hedging(), &after_quick(64, &then));
    world.now = world.now + Duration::from_millis(5); // the answers have arrived but are not read yet
    let job = *world.running().next().expect("one of eight").0;
    world.send(Event::JobCompleted(job));
    assert_eq!(moved(&world), 0);
}

#[test]
fn waiting_batches_follow_the_first_to_an_instance() {
    // Others hold 2, whose limit is one batch until it has one of ours.
    let then = [Leave(1), Join(2), Elsewhere(2, 1, true), Quiet, Query(101), Query(102), Wait(1)];
    let world =
        play_ahead(PoolSettings { ahead: Duration::from_millis(1), ..plain() }, &after_quick(64, &then));
    assert_eq!(words(&world), ["1 run 101 on 2", "1 run 102 on 2"]);
}
