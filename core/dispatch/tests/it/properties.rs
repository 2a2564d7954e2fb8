//! Properties in any order of events: queries are answered once and in time, and all bounds are kept.

use std::time::Duration;

use parm_dispatch::{Failure, PoolId, Served};
use parm_settings::{BudgetSettings, InOutage, PolicyKind, PoolSettings};
use proptest::collection::vec;
use proptest::prelude::*;

use super::drawn_settings::settings;
use super::happening::{Happening, POOLS, SHARES, hanging, happening, stand_ins_join};
use super::schedule::{cases, happen, run, run_hot, run_uneven, run_warm, world};
use super::script::one_by_one;

proptest! {
    #![proptest_config(cases(256))]

    /// The world checks the contract at every action: see there.
    #[test]
    fn every_query_is_answered_once_and_every_job_released_once(
        settings in settings(), instances in 0..6u32, schedule in vec(happening(), 1..250),
    ) {
        run(&settings, instances, &schedule).finish();
    }

    /// Nothing is late while service times are unknown, so warm worlds are worlds of their own.
    #[test]
    fn warm_worlds_answer_and_release_everything_once(
        settings in settings(), instances in 1..6u32, schedule in vec(happening(), 1..250),
    ) {
        run_warm(&settings, instances, &schedule).finish();
    }

    /// Outages begin and end, also of instances that are not gone.
    #[test]
    fn outages_answer_and_release_everything_once(
        settings in settings(), instances in 1..5u32, schedule in vec(hanging(), 1..200),
    ) {
        let mut settings = PoolSettings { policy: PolicyKind::StandIn, ..settings };
        settings.stand_in.in_outage = InOutage::Answer;
        let schedule = [vec![stand_ins_join(), stand_ins_join()], schedule].concat();
        run_hot(&settings, instances, &schedule).finish();
    }

    /// Queries wait for faster instances, and copies explore the slow ones.
    #[test]
    fn uneven_worlds_answer_and_release_everything_once(
        settings in settings(), factors in vec(1..5u64, 2..6), schedule in vec(happening(), 1..250),
    ) {
        run_uneven(&settings, &factors, &schedule).finish();
    }

    #[test]
    fn queues_and_budgets_stay_within_their_bounds(
        settings in settings(), instances in 1..6u32, schedule in vec(happening(), 1..250),
    ) {
        // A pool that is set up anew has new budgets.
        let anew = |what: &Happening| {
            matches!(what, Happening::Change(_) | Happening::Remove(_) | Happening::Force(..) | Happening::Version(..))
        };
        let schedule: Vec<_> = schedule.into_iter().filter(|what| !anew(what)).collect();
        let mut world = world(settings.clone(), instances);
        let mut names = 1000;
        for happening in &schedule {
            happen(&mut world, &mut names, happening);
            for pool in 0..POOLS {
                let queued = world.dispatcher.status(PoolId(pool)).map_or(0, |status| status.queued);
                // Each share has the limit to itself, and so have queries without a share.
                prop_assert!(queued <= settings.queue_limit.get() * (SHARES + 1));
            }
        }
        world.check_bound(&settings);
        let allowed = |budget: &BudgetSettings| {
            f64::from(budget.burst * POOLS) + world.tally.fresh as f64 * budget.ratio.get() + 1e-9
        };
        if settings.policy == PolicyKind::Hedge {
            // Moved jobs do not use the budget.
            let moved: u64 =
                (0..POOLS).filter_map(|pool| world.dispatcher.status(PoolId(pool))).map(|s| s.counters.moved).sum();
            let allowed = allowed(&settings.hedge.budget) + moved as f64;
            prop_assert!(world.tally.copies as f64 <= allowed, "{moved} moved, {:?}", world.tally);
        }
        let retried: u64 =
            (0..POOLS).filter_map(|pool| world.dispatcher.status(PoolId(pool))).map(|s| s.counters.retries).sum();
        // Retries of bad queries are returned to the budget.
        let allowed = allowed(&settings.retry) + world.tally.given_back as f64;
        prop_assert!(retried as f64 <= allowed, "{retried} retries, {:?}", world.tally);
    }

    /// A request that changes something must not run twice, whatever fails, hangs, leaves or comes back.
    #[test]
    fn no_query_runs_twice_under_once(
        settings in settings(), instances in 1..6u32, schedule in vec(happening(), 1..250),
        factors in vec(1..5u64, 2..6),
    ) {
        let settings = PoolSettings { policy: PolicyKind::Once, ..settings };
        // A query that was not sent may run elsewhere.
        let other = |what: &Happening| {
            matches!(what, Happening::Change(_) | Happening::Force(..) | Happening::Failing { how: Failure::Unsent, .. })
        };
        let schedule: Vec<_> = schedule.into_iter().filter(|what| !other(what)).collect();
        let worlds = [run_warm(&settings, instances, &schedule), run_uneven(&settings, &factors, &schedule)];
        for mut world in worlds {
            prop_assert_eq!((world.tally.copies, world.tally.retries), (0, 0));
            world.finish();
        }
    }

    #[test]
    fn the_same_events_lead_to_the_same_actions(
        settings in settings(), instances in 0..6u32, schedule in vec(happening(), 1..100),
    ) {
        let [first, second] = [(), ()].map(|()| run(&settings, instances, &schedule).log);
        prop_assert_eq!(first, second);
    }

    #[test]
    fn no_instance_idles_while_a_query_waits_that_it_could_run(
        instances in 1..6u32, schedule in vec(happening(), 1..250),
    ) {
        // One at a time, so that idle instances are known.
        let settings = PoolSettings { policy: PolicyKind::None, ahead: Duration::ZERO, ..one_by_one() };
        let other = |what: &Happening| {
            matches!(what, Happening::Change(_) | Happening::Force(..) | Happening::Beside { .. } | Happening::Tokens(..))
        };
        let schedule: Vec<_> = schedule.into_iter().filter(|what| !other(what)).collect();
        let world = run(&settings, instances, &schedule);
        for pool in (0..POOLS).map(PoolId) {
            let queued = world.dispatcher.status(pool).map_or(0, |status| status.queued);
            let idle = world.instances.iter().any(|(id, present)| {
                let held = world.running().filter(|(_, held)| held.job.instance == *id);
                let pools: Vec<_> = held.map(|(_, held)| held.job.pool).collect();
                let own = pools.iter().filter(|of| **of == pool).count();
                let serves = present.spec.serves.iter().find(|served| served.pool == pool && served.deployed);
                let has_place = |served: &Served| served.at_once.is_none_or(|most| own < usize::from(most.get()));
                // Nobody else knows the slots of an instance that learns them.
                !present.spec.learns
                    && world.dispatcher.takes(*id, pool)
                    && pools.len() < usize::from(present.spec.slots)
                    && serves.is_some_and(has_place)
            });
            prop_assert!(queued == 0 || !idle, "{queued} wait in {pool:?} while an instance is idle");
        }
    }
}
