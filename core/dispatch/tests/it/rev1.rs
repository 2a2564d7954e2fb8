//! Hostile review 1.

use std::time::Duration;

use parm_dispatch::{
    Action, Answer, BatchSettings, BudgetSettings, EjectionSettings, Event, Fraction, HedgeSettings, InstanceId, InstanceSpec, Order, Placement, PolicyKind,
    PoolId, PoolSettings, QueryId, QuerySpec, Settings, Site, Served, StandInSettings, Judgement, Failure,
};
use super::script::Step::{Cost, Done, Encoded, Fail, Join, Query, Quiet, Wait, Warm};
use super::script::{act, one_by_one, play_ahead, query, words};
use super::world::{Fate, POOL, World};

fn hedging() -> PoolSettings {
    let budget = BudgetSettings { ratio: Fraction::percent(100), burst: 10_000 };
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    let hedge = HedgeSettings { budget, ..HedgeSettings::default() };
    PoolSettings { policy: PolicyKind::Hedge, ejection, hedge, ..one_by_one() }
}

/// A query that was queued ahead at a hung instance, and moved to another that hangs too.
#[test]
fn moved_query_runs_on_the_third_instance() {
    let quick = (1..=64).flat_map(|query| [Query(query), Done(1)]);
    // 101 runs at 1, and 102 waits behind it; 1 hangs. 2 answers 101, then hangs with 102. 3 is idle.
    let steps: Vec<_> = [Join(1)].into_iter().chain(quick).chain([Query(101), Query(102), Join(2), Wait(3), Done(2), Wait(2), Join(3)]).collect();
    let mut world = play_ahead(hedging(), &steps);
    let from = world.log.len();
    let next = |world: &World| {
        world.running().find(|(_, held)| held.job.instance == InstanceId(3)).map(|(job, _)| *job)
    };
    for _ in 0..900 {
        while let Some(job) = next(&world) {
            world.send(Event::JobCompleted(job));
        }
        world.advance(Duration::from_millis(1));
    }
    let open: Vec<_> = world.queries.iter().filter(|(_, tracked)| tracked.fate == Fate::Waiting).map(|(id, _)| *id).collect();
    let said = words(&world);
    println!("{from} {:#?}", &said[said.len().saturating_sub(20)..]);
    for (_, held) in world.running() { println!("{:?} {:?} {:?}", held.job.instance, held.job.role, held.rows); }
    assert!(open.is_empty(), "{open:?} wait at two hung instances while another is idle for 900 ms");
}

/// The reservation of the version that stays is sent again when the other one is unloaded.
#[test]
fn reservation_stays_when_another_version_is_unloaded() {
    use parm_tokens::{Desk, Frontend};
    const MS: Duration = Duration::from_millis(1);
    for (gone, stays) in [(POOL, PoolId(1)), (PoolId(1), POOL)] {
        let (old, new) = (POOL, PoolId(1));
        let mut world = World::new(Settings::uniform(one_by_one()), 7);
        world.send(Event::VersionAdded { pool: new, predecessor: old });
        let serves = vec![Served::all(old), Served::all(new)];
        let spec = InstanceSpec { serves, slots: 1, site: Site::default(), learns: false };
        world.send(Event::InstanceJoined(InstanceId(1), spec));
        world.send(Event::TokensOffered(InstanceId(1)));
        for (id, pool) in [(1, old), (2, new)] {
            let asked = query(id, world.now + 1000 * MS);
            world.send(Event::QueryArrived(QuerySpec { pool, ..asked }));
            world.advance(MS);
        }
        world.send(Event::PoolRemoved(gone));
        let (ours, other) = (Frontend(1), Frontend(2));
        let mut desk: Desk<()> = Desk::new(1, parm_tokens::Settings::default());
        [ours, other].into_iter().for_each(|frontend| desk.join(frontend));
        desk.begin(false, Duration::ZERO);
        for (at, action) in &world.log {
            let Action::Tell(_, order) = action else { continue };
            let order = match *order {
                Order::Reserve(_, class, note, waited) => Order::Reserve((), class, note, waited),
                Order::Withdraw(_) => Order::Withdraw(()),
                Order::GiveBack(token) => Order::GiveBack(token),
            };
            desk.told(ours, order, at.as_nanos());
        }
        assert_eq!(desk.reservations().len(), 1, "{stays:?} waits, {gone:?} is gone: {:?}", words(&world));
    }
}


fn stands_in(attempts: u8) -> PoolSettings {
    let ejection = EjectionSettings { slow_start: Duration::ZERO, ..EjectionSettings::default() };
    let max_attempts = std::num::NonZeroU8::new(attempts).unwrap();
    PoolSettings { policy: PolicyKind::StandIn, ejection, max_attempts, stand_in: StandInSettings::default(), ahead: Duration::ZERO, ..one_by_one() }
}

/// The stand-in's answer is in when the prediction fails for the last time.
#[test]
fn answer_of_a_stand_in_is_given_when_the_last_attempt_fails() {
    let steps = [Cost([25, 50, 100, 200]), Join(1), Warm(80), Join(2), Join(3), Join(4), Quiet, Query(1), Wait(5)];
    let mut world = super::script::play(stands_in(1), &steps);
    // The spare stand-in answers after 5 ms.
    let job = |world: &World, role: &str| world.running().find(|(_, held)| format!("{:?}", held.job.role).starts_with(role)).map(|(id, _)| *id);
    let stand_in = job(&world, "StandIn").expect("spare");
    world.send(Event::JobCompleted(stand_in));
    let own = job(&world, "Deployed").expect("its own");
    world.send(Event::JobFailed(own, Failure::Instance));
    act(&mut world, &Wait(500));
    println!("{:#?}", words(&world));
    let judging: Vec<_> = world.twins.judging.iter().copied().collect();
    judging.into_iter().for_each(|(id, output)| world.send(Event::Judged(id, output, Judgement::Fit(Some(0.99)))));
    assert!(matches!(world.queries[&QueryId(1)].fate, Fate::Answered(parm_dispatch::Answer::StandIn { .. })), "{:#?}", words(&world));
}

/// A parity that is in when the retry budget is spent.
#[test]
fn reconstruction_is_given_when_no_retry_is_left() {
    let mut settings = super::coded::plus(2, 1);
    settings.policy = PolicyKind::ParmPlus;
    settings.retry = BudgetSettings { ratio: Fraction::percent(0), burst: 0 };
    settings.coding.grace.cold = Duration::from_millis(25);
    let steps = [Join(1), Join(2), Join(3), Quiet, Query(1), Query(2), Encoded, Wait(5), Done(3), Done(1), Fail(2), Wait(100)];
    let world = super::script::play(settings, &steps);
    println!("{:#?}", words(&world));
    assert!(words(&world).iter().any(|word| word.contains("decode")), "{:#?}", words(&world));
}


/// A batch of a good query and one that every instance refuses hangs at instance 1.
#[test]
fn good_query_is_answered_when_its_batch_hangs_and_copies_of_it_are_refused() {
    for failure in [Failure::Query, Failure::Model] {
        let batch = BatchSettings { max_size: std::num::NonZeroU16::new(2).unwrap().into(), max_delay: Duration::from_millis(5) };
        let settings = PoolSettings { batch, ahead: Duration::ZERO, ..hedging() };
        let mut world = super::script::play(settings, &[Join(1), Warm(80), Join(2), Join(3), Join(4), Quiet, Query(1), Query(2)]);
        let hung = world.running().next().expect("a batch").1.job.instance;
        for _ in 0..900 {
            world.advance(Duration::from_millis(1));
            let running: Vec<_> = world.running().filter(|(_, held)| held.job.instance != hung).map(|(id, held)| (*id, held.rows.clone())).collect();
            for (job, rows) in running {
                let bad = rows.contains(&QueryId(1));
                world.send(if bad { Event::JobFailed(job, failure) } else { Event::JobCompleted(job) });
            }
        }
        let said = words(&world);
        println!("{failure:?} {:#?} {}", &said[..said.len().min(12)], said.len());
        assert!(matches!(world.queries[&QueryId(2)].fate, Fate::Answered(Answer::Hedged { .. })), "{failure:?} {:?}", world.queries[&QueryId(2)].fate);
    }
}

/// A query hangs at its first instance, and kills each other one that gets it.
#[test]
fn query_that_kills_instances_does_not_kill_them_all() {
    let settings = PoolSettings { policy: PolicyKind::Hedge, ahead: Duration::ZERO, ..one_by_one() };
    let joins = (2..=12).map(Join);
    let steps: Vec<_> = [Join(1), Warm(120)].into_iter().chain(joins).chain([Wait(2000), Quiet, Query(1)]).collect();
    let mut world = super::script::play(settings, &steps);
    let hung = world.running().next().expect("its first job").1.job.instance;
    let mut killed = Vec::new();
    for _ in 0..900 {
        world.advance(Duration::from_millis(1));
        let running: Vec<_> = world.running().filter(|(_, held)| held.job.instance != hung).map(|(id, held)| (*id, held.job.instance)).collect();
        for (job, instance) in running {
            world.send(Event::JobFailed(job, Failure::Instance));
            world.send(Event::InstanceLeft(instance));
            killed.push(instance);
        }
    }
    assert!(killed.len() <= 3, "at most three attempts, but it killed {killed:?}: {:#?}", words(&world));
}

/// A model is unloaded when the answer of a stand-in is in.
#[test]
fn running_stand_in_answers_its_query_when_the_model_is_unloaded() {
    let mut settings = stands_in(3);
    settings.stand_in.spare = false;
    let steps = [Cost([25, 50, 100, 200]), Join(1), Warm(80), Join(2), Join(3), Quiet, Query(1), Query(2), Query(3), Query(4), Wait(12), Done(3), Wait(3)];
    let mut world = super::script::play(settings, &steps);
    let job = world.running().find(|(_, held)| format!("{:?}", held.job.role).starts_with("StandIn")).map(|(id, _)| *id);
    println!("{:#?} {job:?}", words(&world));
    let Some(job) = job else { return };
    world.send(Event::PoolRemoved(POOL));
    world.send(Event::JobCompleted(job));
    act(&mut world, &Wait(300));
    println!("{:#?}", words(&world));
}


/// Whether a slow instance is ejected, at instances with so many slots of which the model may use one.
fn ejects_the_slow(slots: u16) -> bool {
    let mut settings = PoolSettings { ahead: Duration::ZERO, placement: Placement::Turns, ..one_by_one() };
    settings.policy = PolicyKind::None;
    settings.ejection.slow_start = Duration::ZERO;
    let mut world = World::new(Settings::uniform(settings), 7);
    for id in 1..=4 {
        let served = Served { at_once: std::num::NonZeroU16::new(1), ..Served::all(POOL) };
        let spec = InstanceSpec { serves: vec![served], slots, site: Site::default(), learns: false };
        world.send(Event::InstanceJoined(InstanceId(id), spec));
    }
    for id in 0..200 {
        let asked = query(id, world.now + Duration::from_secs(5));
        world.send(Event::QueryArrived(asked));
        let (job, at) = world.running().map(|(job, held)| (*job, held.job.instance)).next().expect("it runs");
        let slow = at == InstanceId(2) && id > 100;
        world.advance(Duration::from_millis(if slow { 200 } else { 20 }));
        world.send(Event::JobCompleted(job));
    }
    world.log.iter().any(|(_, action)| matches!(action, Action::Ejected(InstanceId(2), ..)))
}

#[test]
fn slow_instance_is_ejected_whatever_slots_other_models_use() {
    assert!(ejects_the_slow(1), "the control");
    assert!(ejects_the_slow(8), "another model of these servers may use all 8 slots");
}


use proptest::prelude::*;
use proptest::collection::vec;
use super::drawn_settings::settings;
use super::lost::{ample, patient, run_well};
use super::schedule::{Happening, cases, happening, run_warm, run_uneven};

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn several_hung_instances_cost_no_query_its_deadline(
        settings in settings(), instances in 2..6u32, schedule in vec(happening(), 1..120), which in any::<u32>(), uneven in any::<bool>(), factors in vec(1..5u64, 2..6),
        kind in prop::sample::select(vec![PolicyKind::Hedge, PolicyKind::ParmPlus, PolicyKind::StandIn]), drains in any::<bool>(), fit in any::<bool>(),
    ) {
        let mut settings = ample(settings, kind);
        settings.max_attempts = std::num::NonZeroU8::new(100).unwrap();
        let calm = |what: &Happening| {
            !matches!(
                what,
                Happening::Change(_)
                    | Happening::Force(..)
                    | Happening::Remove(_)
                    | Happening::Tokens(..)
                    | Happening::Desert
                    | Happening::Failing { how: Failure::Withheld, .. }
            )
        };
        let schedule: Vec<_> = schedule.into_iter().filter(calm).map(patient).collect();
        let mut world = if uneven { run_uneven(&settings, &factors, &schedule) } else { run_warm(&settings, instances, &schedule) };
        let ids: Vec<_> = world.instances.keys().copied().collect();
        let hung: Vec<_> = ids.iter().copied().enumerate().filter(|(at, _)| which >> (at % 32) & 1 == 1).map(|(_, id)| id).collect();
        if hung.len() == ids.len() {
            return Ok(());
        }
        if drains && !hung.is_empty() {
            world.send(Event::InstanceDraining(hung[0]));
        }
        let judgement = if fit { Judgement::Fit(Some(0.9)) } else { Judgement::Unfit };
        run_well(&mut world, 3000, Duration::from_millis(2), &hung, judgement);
        for (id, tracked) in world.queries.iter().filter(|(_, tracked)| tracked.fate == Fate::Waiting) {
            let usable = world.dispatcher.status(tracked.query.pool).map_or(0, |status| status.usable_instances);
            let out = hung.iter().filter(|id| world.dispatcher.takes(**id, tracked.query.pool)).count() as u32;
            let others = usable.saturating_sub(out);
            let jobs: Vec<_> = world.running().filter(|(_, held)| held.rows.contains(id)).map(|(_, held)| (held.job.instance, held.job.role)).collect();
            prop_assert!(others < 1, "{id:?} waits after 6 s in which {hung:?} hang and {others} are well: {tracked:?} {jobs:?}");
        }
    }
}
