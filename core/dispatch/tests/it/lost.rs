//! Lost queries: in any order of events every query is answered, whichever instance hangs.

use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use parm_dispatch::{Elsewhere, Event, Failure, InstanceId, Judgement};
use parm_settings::{BudgetSettings, Fraction, HedgeSettings, PolicyKind, PoolSettings, Unsure};
use proptest::collection::vec;
use proptest::prelude::*;

use super::drawn_settings::settings;
use super::happening::{Happening, happening};
use super::schedule::{answer_driver, cases, run, run_warm};
use super::world::{Fate, World};

/// Queries that have minutes, so that a deadline ends none of them.
pub(crate) fn patient(what: Happening) -> Happening {
    match what {
        Happening::Arrival { pool, shape, within_ms, priority, share, accept, codable, size } => {
            let within_ms = 1_000_000 + within_ms;
            Happening::Arrival { pool, shape, within_ms, priority, share, accept, codable, size }
        }
        Happening::Burst(count, one) => Happening::Burst(count, Box::new(patient(*one))),
        other => other,
    }
}

pub(crate) fn waits(world: &World) -> bool {
    world.queries.values().any(|tracked| tracked.fate == Fate::Waiting)
}

/// Lets time pass while every instance except one is well and answers jobs and probes within a step.
pub(crate) fn run_well(
    world: &mut World,
    steps: u32,
    step: Duration,
    hung: &[InstanceId],
    judgement: Judgement,
) {
    for id in world.instances.keys().copied().collect::<Vec<_>>() {
        world.send(Event::TokensEnded(id));
        world.send(Event::HeldElsewhere(id, Elsewhere::default()));
    }
    for _ in 0..steps {
        let well = |id: InstanceId| !hung.contains(&id);
        let running: Vec<_> =
            world.running().filter(|(_, held)| well(held.job.instance)).map(|(id, _)| *id).collect();
        world.advance(step);
        running.into_iter().for_each(|job| world.send(Event::JobCompleted(job)));
        let probes: Vec<_> = world.probes.iter().copied().filter(|(id, _)| well(*id)).collect();
        probes.into_iter().for_each(|(id, pool)| world.send(Event::ProbeAnswered(id, pool, true)));
        answer_driver(world, judgement);
        if !waits(world) {
            return;
        }
    }
}

/// Settings under which only the dispatcher's rules can delay a late query.
pub(crate) fn ample(settings: PoolSettings, kind: PolicyKind) -> PoolSettings {
    let budget = BudgetSettings { ratio: Fraction::percent(100), burst: 10_000 };
    let mut settings = PoolSettings {
        policy: kind,
        hedge: HedgeSettings { budget: budget.clone(), ..settings.hedge },
        retry: budget.clone(),
        queue_limit: const { NonZeroU32::new(1000).unwrap() },
        ..settings
    };
    settings.coding.parm_plus.hedge = true;
    (settings.coding.unsure, settings.stand_in.unsure) = (Unsure::Hedge, Unsure::Hedge);
    (settings.stand_in.hedge, settings.stand_in.late_budget) = (true, budget);
    settings.ejection.slow_start = Duration::ZERO;
    settings.max_attempts = settings.max_attempts.max(NonZeroU8::new(3).expect("positive"));
    settings
}

/// Events under which no query must wait for a hung instance. A query whose request cannot be sent again runs where it is,
/// however long that hangs.
fn is_calm(what: &Happening) -> bool {
    !matches!(
        what,
        Happening::Change(_)
            | Happening::Force(..)
            | Happening::Remove(_)
            | Happening::Tokens(..)
            | Happening::Desert
            | Happening::Failing { how: Failure::Withheld, .. }
    )
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn nothing_is_lost_once_all_is_well_again(
        settings in settings(), instances in 1..6u32, schedule in vec(happening(), 1..200), warm in any::<bool>(), fit in any::<bool>(),
    ) {
        let schedule: Vec<_> = schedule.into_iter().map(patient).collect();
        let run = if warm { run_warm } else { run };
        let mut world = run(&settings, instances, &schedule);
        let judgement = if fit { Judgement::Fit(Some(0.9)) } else { Judgement::Unfit };
        run_well(&mut world, 4000, Duration::from_millis(1), &[], judgement);
        for (id, tracked) in &world.queries {
            prop_assert!(tracked.fate != Fate::Waiting, "{id:?} waits after 4 s in which all is well: {tracked:?}");
        }
    }

    #[test]
    fn one_hung_instance_costs_no_query_its_deadline(
        settings in settings(), instances in 2..6u32, schedule in vec(happening(), 1..120), which in any::<usize>(),
        kind in prop::sample::select(vec![PolicyKind::Hedge, PolicyKind::ParmPlus, PolicyKind::StandIn]), drains in any::<bool>(), left in 1..4usize,
    ) {
        let mut settings = ample(settings, kind);
        // A query that failed at as many instances gets no copy while a job of it hangs.
        settings.max_attempts = NonZeroU8::new(100).expect("positive");
        let schedule: Vec<_> = schedule.into_iter().filter(is_calm).map(patient).collect();
        let mut world = run_warm(&settings, instances, &schedule);
        let ids: Vec<_> = world.instances.keys().copied().collect();
        if ids.len() < 2 {
            return Ok(());
        }
        let hung = ids[which % ids.len()];
        // With few instances left, a draining one may be the only other holder of a query.
        for id in ids.iter().filter(|id| **id != hung).skip(left) {
            world.send(Event::InstanceLeft(*id));
        }
        if drains {
            world.send(Event::InstanceDraining(hung));
        }
        run_well(&mut world, 3000, Duration::from_millis(2), &[hung], Judgement::Unfit);
        for (id, tracked) in world.queries.iter().filter(|(_, tracked)| tracked.fate == Fate::Waiting) {
            // An instance that is kept for parities takes no queries.
            let usable = world.dispatcher.status(tracked.query.pool).map_or(0, |status| status.usable_instances);
            let others = usable - u32::from(world.dispatcher.takes(hung, tracked.query.pool)).min(usable);
            prop_assert!(others < 1, "{id:?} waits after 6 s in which {hung:?} hangs and {others} are well: {tracked:?}");
        }
    }

    #[test]
    fn no_query_waits_for_several_hung_instances(
        settings in settings(),
        instances in 2..6u32,
        schedule in vec(happening(), 1..120),
        hangs in any::<u32>(),
        kind in prop::sample::select(vec![PolicyKind::Hedge, PolicyKind::ParmPlus, PolicyKind::StandIn]),
        drains in any::<bool>(),
        fit in any::<bool>(),
    ) {
        let mut settings = ample(settings, kind);
        settings.max_attempts = NonZeroU8::new(100).expect("positive");
        let schedule: Vec<_> = schedule.into_iter().filter(is_calm).map(patient).collect();
        let mut world = run_warm(&settings, instances, &schedule);
        let ids: Vec<_> = world.instances.keys().copied().collect();
        let hung = ids.iter().enumerate().filter(|(at, _)| hangs >> (at % 32) & 1 == 1);
        let hung: Vec<_> = hung.map(|(_, id)| *id).collect();
        if hung.len() == ids.len() {
            return Ok(());
        }
        if let Some(first) = hung.first().filter(|_| drains) {
            world.send(Event::InstanceDraining(*first));
        }
        let judgement = if fit { Judgement::Fit(Some(0.9)) } else { Judgement::Unfit };
        run_well(&mut world, 3000, Duration::from_millis(2), &hung, judgement);
        for (id, tracked) in world.queries.iter().filter(|(_, tracked)| tracked.fate == Fate::Waiting) {
            let pool = tracked.query.pool;
            let usable = world.dispatcher.status(pool).map_or(0, |status| status.usable_instances);
            let out = hung.iter().filter(|id| world.dispatcher.takes(**id, pool)).count() as u32;
            prop_assert!(usable <= out, "{id:?} waits although {hung:?} hang alone: {tracked:?}");
        }
    }
}
