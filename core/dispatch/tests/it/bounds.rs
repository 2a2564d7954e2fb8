//! Bounds on approximate answers: the client's share, the operator's window, and the least confidence.

use std::num::NonZeroU32;
use std::time::Duration;

use parm_dispatch::{Accept, Action, Answer, Event, JobId, Judgement, PoolId, QueryId, Role, Time};
use parm_settings::{Fraction, PolicyKind, PoolSettings, StandInSettings};

use proptest::prelude::*;

use super::rescue::standing;
use super::schedule::cases;
use super::script::Step::{self, *};
use super::script::{act, one_by_one, play, words};
use super::world::{Fate, Held, POOL, World};

/// Service times are known, and instances 2 and 3 are idle.
const WARM: [Step; 6] = [Cost([25, 50, 100, 200]), Join(1), Warm(32), Join(2), Join(3), Quiet];

fn standing_in() -> PoolSettings {
    let mut settings = PoolSettings { policy: PolicyKind::StandIn, ..one_by_one() };
    settings.ejection.slow_start = Duration::ZERO;
    settings.ejection.enabled = false;
    settings
}

#[test]
fn client_gets_its_asked_share_when_others_accept_more() {
    let mut world = play(standing_in(), &WARM);
    let tenth = Accept::AtMost(100);
    let mut given = 0;
    for round in 0..4000 {
        if round % 20 < 19 {
            // Another client accepts half, and its queries take their usual time, so it uses none of its credit.
            fast_query(&mut world, AtMost(round, 500), round);
            continue;
        }
        slow_query(&mut world, AtMost(round, 100), round);
        let asked = world.queries.values().filter(|tracked| tracked.query.accept == tenth).count();
        given += usize::from(stood_in(&world, round));
        assert!(given * 10 <= asked, "{given} of the first {asked} answers are approximate");
    }
    assert!(given >= 15, "{given} of 200: a slow query gets the approximation that its own client earned");
    world.finish();
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn clients_get_no_more_than_each_asks_for(
        queries in prop::collection::vec((prop::sample::select(vec![100u16, 500, 900]), any::<bool>()), 20..60),
    ) {
        let mut world = play(standing_in(), &WARM);
        for (id, (asked, slow)) in (0..).zip(&queries) {
            let ask = if *slow { slow_query } else { fast_query };
            ask(&mut world, AtMost(id, *asked), id);
        }
        world.check_clients_bounds();
    }
}

#[test]
fn answers_stay_within_the_bound_when_its_window_changes() {
    let with_window = |window| {
        let mut settings = standing_in();
        settings.stand_in.bound_window = NonZeroU32::new(window).expect("positive");
        settings.stand_in.hedge = false;
        settings
    };
    // 5 % of 40 and of 41 answers are two.
    let mut world = play(with_window(40), &WARM);
    let mut id = 0;
    for round in 0..8 {
        for _ in 0..5 {
            slow_query(&mut world, Query(id), id);
            fast_query(&mut world, Query(id + 1), id + 1);
            fast_query(&mut world, Query(id + 2), id + 2);
            id += 3;
        }
        act(&mut world, &Settings(Box::new(with_window(41 - round % 2))));
    }
    let given = (0..id).filter(|id| stood_in(&world, *id)).count();
    assert!(given >= 4, "{given} of {id}: the bound is used");
    world.check_bound(&with_window(40));
    world.finish();
}

#[test]
fn new_version_counts_the_answers_of_the_one_before() {
    let mut settings = standing_in();
    (settings.stand_in.bound_window, settings.stand_in.hedge) =
        (const { NonZeroU32::new(40).unwrap() }, false);
    let mut world = play(settings, &WARM);
    for id in 0..10 {
        slow_query(&mut world, Query(id), id);
    }
    let given = (0..10).filter(|id| stood_in(&world, *id)).count();
    assert_eq!(given, 2, "5 % of 40");
    let next = PoolId(1);
    world.send(Event::VersionAdded { pool: next, predecessor: POOL });
    let now = world.now;
    let of =
        [POOL, next].map(|pool| world.dispatcher.reading(now, pool).and_then(|reading| reading.approximate));
    assert_eq!(of, [Some([2, 2, 40]); 2], "given, allowed, counted");
}

#[test]
fn versions_that_serve_together_share_their_bound() {
    let mut settings = standing_in();
    (settings.stand_in.bound_window, settings.stand_in.hedge) =
        (const { NonZeroU32::new(40).unwrap() }, false);
    let mut world = play(settings, &WARM);
    let next = PoolId(1);
    world.send(Event::VersionAdded { pool: next, predecessor: POOL });
    for id in 0..10 {
        slow_query(&mut world, Query(id), id);
    }
    let given = (0..10).filter(|id| stood_in(&world, *id)).count();
    assert_eq!(given, 2, "5 % of 40");
    let now = world.now;
    let of =
        [POOL, next].map(|pool| world.dispatcher.reading(now, pool).and_then(|reading| reading.approximate));
    assert_eq!(of, [Some([2, 2, 40]); 2], "the next answers may come from either");
}

#[test]
fn stand_in_is_given_only_when_it_is_confident_enough() {
    let rows = [
        (0, None, "answer 1 stand-in"),
        (0, Some(0.1), "answer 1 stand-in"),
        (90, Some(0.95), "answer 1 stand-in"),
        (90, Some(0.5), "copy 1 on 3"),
        // The answer is not a class, so it has no confidence.
        (90, None, "copy 1 on 3"),
    ];
    for (least, confidence, expect) in rows {
        let mut settings = standing_in();
        settings.stand_in.min_confidence = Fraction::percent(least);
        let steps = [Query(1), Wait(5), Done(3), Wait(20)];
        let mut world = play(settings, &[&WARM[..], &steps].concat());
        let (query, output) = *world.twins.judging.first().expect("a judgement was requested");
        world.log.clear();
        world.send(Event::Judged(query, output, Judgement::Fit(confidence)));
        assert_eq!(words(&world)[0], format!("665 {expect}"), "{least} %, {confidence:?}");
        world.finish();
    }
}

/// A query that is answered by its prediction after the usual time.
fn fast_query(world: &mut World, query: Step, id: u64) {
    act(world, &query);
    act(world, &Wait(20));
    end_jobs(world, id, true);
}

/// A query whose prediction takes 200 ms and whose stand-in takes 6 ms.
fn slow_query(world: &mut World, query: Step, id: u64) {
    act(world, &query);
    act(world, &Wait(26));
    end_jobs(world, id, false);
    act(world, &Wait(200));
    end_jobs(world, id, true);
    act(world, &Wait(5));
}

/// Ends the stand-ins of a query, and its predictions if they have arrived.
fn end_jobs(world: &mut World, id: u64, predictions: bool) {
    loop {
        judge(world);
        let ends = |role: Role| predictions || matches!(role, Role::StandIn(_));
        let job = world.running().find(|(_, held)| held.rows.contains(&QueryId(id)) && ends(held.job.role));
        let Some(job) = job.map(|(id, _)| *id) else { break };
        world.send(Event::JobCompleted(job));
    }
    act(world, &Checked(true));
}

/// The driver finds all stand-ins confident.
fn judge(world: &mut World) {
    let judging: Vec<_> = world.twins.judging.iter().copied().collect();
    judging
        .into_iter()
        .for_each(|(id, output)| world.send(Event::Judged(id, output, Judgement::Fit(Some(0.99)))));
}

fn stood_in(world: &World, id: u64) -> bool {
    matches!(world.queries[&QueryId(id)].fate, Fate::Answered(Answer::StandIn { .. }))
}

/// Lets time pass. Runs take 20 ms, except those of two queries, which hang, and stand-ins take 5 ms.
fn pass(world: &mut World, time: Duration) {
    let until = world.now + time;
    let ms = Duration::from_millis;
    while world.now < until {
        world.advance(ms(1) / 10);
        let hangs = |query: &QueryId| [1, 50].contains(&query.0);
        let takes = |held: &Held| match held.job.role {
            Role::StandIn(_) => Some(ms(5)),
            _ => (!held.rows.iter().any(hangs)).then_some(ms(20)),
        };
        let ends =
            |job: &JobId, held| takes(held).is_some_and(|takes| world.now.since(began(world, *job)) >= takes);
        let ended: Vec<_> = world.running().filter(|(id, held)| ends(id, held)).map(|(id, _)| *id).collect();
        ended.into_iter().for_each(|job| world.send(Event::JobCompleted(job)));
        judge(world);
        act(world, &Checked(true));
    }
}

fn began(world: &World, job: JobId) -> Time {
    let runs = |action: &Action| matches!(action, Action::Run(of, _) if of.id == job);
    world.log.iter().find(|(_, action)| runs(action)).expect("it runs").0
}

/// The bound has no room when the answer is in, and has room again before the deadline.
#[test]
fn stand_in_is_given_when_the_bound_has_room_in_time() {
    let stand_in = StandInSettings {
        bound: Fraction::percent(10),
        bound_window: NonZeroU32::new(10).expect("positive"),
        hedge: false,
        ..StandInSettings::default()
    };
    let joins: Vec<_> = (2..=8).map(Join).collect();
    let steps =
        [&[Cost([25, 50, 100, 200]), Join(1), Warm(80)], &joins[..], &[Quiet, Within(1, 1000)]].concat();
    let mut world = play(PoolSettings { stand_in, ..standing() }, &steps);
    let ms = Duration::from_millis;
    pass(&mut world, ms(30));
    assert!(stood_in(&world, 1), "{:?}", words(&world));
    for id in 10..19 {
        act(&mut world, &Within(id, 1000));
        pass(&mut world, ms(30));
    }
    act(&mut world, &Within(50, 29));
    pass(&mut world, ms(65) / 10);
    act(&mut world, &Within(51, 1000));
    pass(&mut world, ms(30));
    assert!(stood_in(&world, 50), "{:?}", words(&world));
}
