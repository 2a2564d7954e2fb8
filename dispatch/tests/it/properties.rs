//! In any order of events: every query answered once and in time, no useless work, every bound kept.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::time::Duration;

use parm_dispatch::{
    Accept, AgreementSettings, BatchSettings, BudgetSettings, CodingSettings, Cost, DetectionSettings,
    Elsewhere, Event, Factor, Failure, Fraction, GraceSettings, HedgeSettings, InstanceId, InstanceSpec,
    Judgement, NodeId, ParmPlusSettings, PolicyKind, PoolId, PoolSettings, QueryId, QuerySpec, Served,
    Settings, ShapeId, ShareId, Site, StandInSettings, Terms, Unsure, Verdict, ZoneId,
};
use parm_encoder::Kind;
use proptest::collection::vec;
use proptest::prelude::*;

use super::world::World;

/// Something that may happen; numbers choose among what is there at the time.
#[derive(Clone, Debug)]
enum Happening {
    Arrival {
        pool: u32,
        shape: u32,
        within_ms: u64,
        priority: u8,
        share: Option<u32>,
        accept: Accept,
        codable: bool,
    },
    Cancel(usize),
    Completion(usize),
    Failing {
        job: usize,
        how: Failure,
    },
    Join {
        slots: u16,
        pools: u32,
        node: u32,
    },
    Leave(usize),
    Drain(usize),
    ProbeAnswer {
        probe: usize,
        works: bool,
    },
    Encoding {
        group: usize,
        works: bool,
    },
    Decoding {
        slot: usize,
        outcome: Option<Option<f32>>,
    },
    Comparing {
        group: usize,
        agrees: bool,
    },
    Judging {
        answer: usize,
        judgement: Judgement,
    },
    Checking {
        pair: usize,
        agrees: Option<bool>,
    },
    Costing(f64),
    Beside {
        instance: usize,
        jobs: u16,
        home: bool,
    },
    /// In 100 us.
    Time(u64),
    Change(Box<PoolSettings>),
    /// The model is unloaded; what comes for it later finds nobody, unless an instance joins with it again.
    Remove(u32),
}

const POOLS: u32 = 2;
const SHARES: u32 = 2;

fn settings() -> impl Strategy<Value = PoolSettings> {
    let policy = prop_oneof![
        1 => Just(PolicyKind::None),
        1 => Just(PolicyKind::Equal),
        1 => Just(PolicyKind::Replicate),
        2 => Just(PolicyKind::Hedge),
        3 => Just(PolicyKind::Parm),
        4 => Just(PolicyKind::ParmPlus),
        2 => Just(PolicyKind::ApproximateBackup),
        6 => Just(PolicyKind::StandIn),
    ];
    (policy, 1..20u32, 1..4u16, 0..5u64, 0..30u8, 0..4u32, (coding(), stand_in()), any::<bool>()).prop_map(
        |(policy, queue, batch, delay_ms, percent, burst, (coding, stand_in), default_answer)| {
            let budget = BudgetSettings { ratio: Fraction::percent(percent), burst };
            PoolSettings {
                policy,
                queue_limit: NonZeroU32::new(queue).expect("positive"),
                batch: BatchSettings {
                    max_size: NonZeroU16::new(batch).expect("positive"),
                    max_delay: Duration::from_millis(delay_ms),
                },
                // What takes a few milliseconds here counts as fast in some.
                ahead: Duration::from_millis(4 * delay_ms),
                hedge: HedgeSettings { budget: budget.clone(), ..HedgeSettings::default() },
                retry: budget,
                no_instance_grace: Duration::from_millis(50),
                coding,
                stand_in,
                default_answer,
                ..PoolSettings::default()
            }
        },
    )
}

fn coding() -> impl Strategy<Value = CodingSettings> {
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let switches = (switches, any::<bool>(), any::<bool>());
    (2..5u8, 1..3u8, 0..30u64, 0..20u64, switches).prop_map(|(k, r, age_ms, grace_ms, switches)| {
        let (switches, detects, ejects) = switches;
        let (one_parity, partial_groups, shared_pool, parities_yield, k_follows_load, wait) = switches;
        CodingSettings {
            k: NonZeroU8::new(k).expect("positive"),
            r: NonZeroU8::new(r).expect("positive"),
            code: one_parity.then_some(Kind::Slots),
            max_age: Duration::from_millis(age_ms),
            grace: GraceSettings { cold: Duration::from_millis(grace_ms), ..GraceSettings::default() },
            min_confidence: Fraction::percent(50),
            unsure: if wait { Unsure::Wait } else { Unsure::Hedge },
            parm_plus: ParmPlusSettings {
                partial_groups,
                shared_pool,
                parities_yield,
                k_follows_load,
                ..ParmPlusSettings::default()
            },
            detection: DetectionSettings {
                enabled: detects,
                significance: Fraction::percent(10),
                min_samples: NonZeroU32::MIN,
                eject: ejects,
                max_wait: Duration::from_millis(age_ms),
                ..DetectionSettings::default()
            },
            ..CodingSettings::default()
        }
    })
}

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![2 => Just(Failure::Instance), 2 => Just(Failure::Model), 1 => Just(Failure::Query)]
}

fn stand_in() -> impl Strategy<Value = StandInSettings> {
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (1..150u8, 1..9u8, 0..60u8, 1..20u32, 0..20u64, switches).prop_map(
        |(cost, max_rows, bound, window, grace_ms, (spare, late, wait, eject))| StandInSettings {
            cost: Factor::percent(cost.into()),
            spare,
            late,
            late_budget: BudgetSettings { ratio: Fraction::percent(10), burst: 2 },
            max_rows: NonZeroU8::new(max_rows).expect("positive"),
            grace: GraceSettings { cold: Duration::from_millis(grace_ms), ..GraceSettings::default() },
            bound: Fraction::percent(bound),
            bound_window: NonZeroU32::new(window).expect("positive"),
            min_confidence: Fraction::percent(50),
            unsure: if wait { Unsure::Wait } else { Unsure::Hedge },
            agreement: AgreementSettings {
                floor: Fraction::percent(30),
                window: NonZeroU32::new(10).expect("positive"),
                significance: Fraction::percent(10),
                min_samples: NonZeroU32::MIN,
                eject,
                ..AgreementSettings::default()
            },
            ..StandInSettings::default()
        },
    )
}

fn judgement() -> impl Strategy<Value = Judgement> {
    prop_oneof![
        4 => prop::option::of(0f32..1.0).prop_map(Judgement::Fit),
        1 => Just(Judgement::Unfit),
    ]
}

fn accept() -> impl Strategy<Value = Accept> {
    prop_oneof![7 => Just(Accept::Any), 2 => Just(Accept::Exact), 1 => (0..1000u16).prop_map(Accept::AtMost)]
}

fn happening() -> impl Strategy<Value = Happening> {
    let plain = (prop::option::of(0..SHARES), prop::bool::weighted(0.9));
    let arrival = (0..POOLS, 0..2u32, 0..300u64, 0..3u8, accept(), plain).prop_map(
        |(pool, shape, within_ms, priority, accept, (share, codable))| Happening::Arrival {
            pool,
            shape,
            within_ms,
            priority,
            share,
            accept,
            codable,
        },
    );
    prop_oneof![
        12 => arrival,
        1 => any::<usize>().prop_map(Happening::Cancel),
        10 => any::<usize>().prop_map(Happening::Completion),
        2 => (any::<usize>(), failure()).prop_map(|(job, how)| Happening::Failing { job, how }),
        1 => (1..3u16, 1..4u32, 0..3u32).prop_map(|(slots, pools, node)| Happening::Join { slots, pools, node }),
        1 => any::<usize>().prop_map(Happening::Leave),
        1 => any::<usize>().prop_map(Happening::Drain),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(probe, works)| Happening::ProbeAnswer { probe, works }),
        6 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(group, works)| Happening::Encoding { group, works }),
        6 => (any::<usize>(), prop::option::weighted(0.9, prop::option::of(0f32..1.0)))
            .prop_map(|(slot, outcome)| Happening::Decoding { slot, outcome }),
        6 => (any::<usize>(), prop::bool::weighted(0.7)).prop_map(|(group, agrees)| Happening::Comparing { group, agrees }),
        8 => (any::<usize>(), judgement()).prop_map(|(answer, judgement)| Happening::Judging { answer, judgement }),
        8 => (any::<usize>(), prop::option::weighted(0.9, prop::bool::weighted(0.7)))
            .prop_map(|(pair, agrees)| Happening::Checking { pair, agrees }),
        1 => (0.05..1.5f64).prop_map(Happening::Costing),
        2 => (any::<usize>(), 0..3u16, any::<bool>())
            .prop_map(|(instance, jobs, home)| Happening::Beside { instance, jobs, home }),
        8 => prop_oneof![4 => 0..100u64, 1 => 0..3000u64].prop_map(Happening::Time),
        1 => settings().prop_map(|settings| Happening::Change(Box::new(settings))),
        1 => (0..POOLS).prop_map(Happening::Remove),
    ]
}

fn world(settings: PoolSettings, instances: u32) -> World {
    // One with nothing but its weight, one with an instance reserved.
    let terms = |share| Terms { weight: f64::from(1 + share), reserved: share };
    let shares = (0..SHARES).map(|share| (ShareId(share), terms(share))).collect();
    let settings = Settings { shares, ..Settings::uniform(settings) };
    let mut world = World::new(settings, 1).given_ahead();
    world.groups.compares = true;
    for id in 0..instances {
        join(&mut world, id, 1, 3, id % 3);
    }
    world
}

fn join(world: &mut World, id: u32, slots: u16, pools: u32, node: u32) {
    let serves =
        (0..POOLS).filter(|pool| pools & 1 << pool != 0).map(|pool| Served::all(PoolId(pool))).collect();
    // Two nodes in one zone, and one of which the zone is not known.
    let zone = (node < 2).then_some(ZoneId(0));
    let spec = InstanceSpec { serves, slots, site: Site { node: Some(NodeId(node)), zone } };
    world.send(Event::InstanceJoined(InstanceId(id), spec));
}

fn happen(world: &mut World, names: &mut u32, happening: &Happening) {
    *names += 1;
    let choose = |count: usize, which: usize| (count > 0).then(|| which % count);
    match *happening {
        Happening::Arrival { pool, shape, within_ms, priority, share, accept, codable } => {
            let (id, deadline) = (QueryId(u64::from(*names)), world.now + Duration::from_millis(within_ms));
            let (pool, shape) = (PoolId(pool), ShapeId(shape));
            world.send(Event::QueryArrived(QuerySpec {
                id,
                pool,
                shape,
                deadline,
                priority,
                share: share.map(ShareId),
                accept,
                codable,
            }));
        }
        Happening::Cancel(which) => {
            if let Some(at) = choose(world.queries.len(), which) {
                let id = *world.queries.keys().nth(at).expect("counted");
                world.send(Event::QueryCancelled(id));
            }
        }
        Happening::Completion(which) => {
            if let Some(at) = choose(world.running().count(), which) {
                let id = *world.running().nth(at).expect("counted").0;
                world.send(Event::JobCompleted(id));
            }
        }
        Happening::Failing { job, how } => {
            if let Some(at) = choose(world.running().count(), job) {
                let id = *world.running().nth(at).expect("counted").0;
                world.send(Event::JobFailed(id, how));
            }
        }
        Happening::Join { slots, pools, node } => join(world, *names, slots, pools, node),
        Happening::Leave(which) => {
            if let Some(id) =
                choose(world.instances.len(), which).and_then(|at| world.instances.keys().nth(at))
            {
                world.send(Event::InstanceLeft(*id));
            }
        }
        Happening::Drain(which) => {
            if let Some(id) =
                choose(world.instances.len(), which).and_then(|at| world.instances.keys().nth(at))
            {
                world.send(Event::InstanceDraining(*id));
            }
        }
        Happening::Beside { instance, jobs, home } => {
            if let Some(id) =
                choose(world.instances.len(), instance).and_then(|at| world.instances.keys().nth(at))
            {
                world.send(Event::HeldElsewhere(*id, Elsewhere { jobs, home }));
            }
        }
        Happening::ProbeAnswer { probe, works } => {
            if let Some(probe) = choose(world.probes.len(), probe).and_then(|at| world.probes.iter().nth(at))
            {
                let (id, pool) = *probe;
                world.send(Event::ProbeAnswered(id, pool, works));
            }
        }
        Happening::Encoding { group, works } => {
            let encodings = &world.groups.encodings;
            if let Some(id) = choose(encodings.len(), group).and_then(|at| encodings.iter().nth(at)) {
                world.send(if works { Event::GroupEncoded(*id) } else { Event::GroupFailed(*id) });
            }
        }
        Happening::Decoding { slot, outcome } => {
            let decodings = &world.groups.decodings;
            if let Some((group, query)) =
                choose(decodings.len(), slot).and_then(|at| decodings.keys().nth(at))
            {
                world.send(match outcome {
                    Some(confidence) => Event::SlotDecoded { group: *group, query: *query, confidence },
                    None => Event::SlotFailed { group: *group, query: *query },
                });
            }
        }
        Happening::Comparing { group, agrees } => {
            let comparisons = &world.groups.comparisons;
            if let Some(id) = choose(comparisons.len(), group).and_then(|at| comparisons.keys().nth(at)) {
                let verdict = |slot| Verdict { slot, row: 0, agrees: agrees || slot == 0 };
                world.send(Event::Compared(*id, (0..4).map(verdict).collect()));
            }
        }
        Happening::Judging { answer, judgement } => {
            let judging = &world.twins.judging;
            if let Some((id, output)) = choose(judging.len(), answer).and_then(|at| judging.iter().nth(at)) {
                world.send(Event::Judged(*id, *output, judgement));
            }
        }
        Happening::Checking { pair, agrees } => {
            let checking = &world.twins.checking;
            if let Some(pair) = choose(checking.len(), pair).and_then(|at| checking.iter().nth(at)) {
                world.send(Event::Checked(*pair, agrees));
            }
        }
        Happening::Costing(row) => {
            world.send(Event::StandInCost(PoolId(*names % POOLS), Cost::linear(row)));
        }
        Happening::Time(steps) => world.advance(Duration::from_micros(100 * steps)),
        Happening::Change(ref settings) => {
            world.send(Event::settings(PoolId(*names % POOLS), *settings.clone()));
        }
        Happening::Remove(pool) => world.send(Event::PoolRemoved(PoolId(pool))),
    }
}

fn run(settings: &PoolSettings, instances: u32, schedule: &[Happening]) -> World {
    let mut world = world(settings.clone(), instances);
    let mut names = 1000;
    for happening in schedule {
        happen(&mut world, &mut names, happening);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// The world checks the contract at every action: see there.
    #[test]
    fn every_query_is_answered_once_and_every_job_released_once(
        settings in settings(), instances in 0..6u32, schedule in vec(happening(), 1..250),
    ) {
        run(&settings, instances, &schedule).finish();
    }

    #[test]
    fn queues_and_budgets_stay_within_their_bounds(
        settings in settings(), instances in 1..6u32, schedule in vec(happening(), 1..250),
    ) {
        // A pool that is set up anew has new budgets.
        let anew = |what: &Happening| matches!(what, Happening::Change(_) | Happening::Remove(_));
        let schedule: Vec<_> = schedule.into_iter().filter(|what| !anew(what)).collect();
        let mut world = world(settings.clone(), instances);
        let mut names = 1000;
        for happening in &schedule {
            happen(&mut world, &mut names, happening);
            for pool in 0..POOLS {
                let queued = world.dispatcher.status(PoolId(pool)).map_or(0, |status| status.queued);
                // Each share has the limit to itself, and so has who belongs to none.
                prop_assert!(queued <= settings.queue_limit.get() * (SHARES + 1));
            }
        }
        world.check_bound(&settings);
        let allowed = |budget: &BudgetSettings| {
            f64::from(budget.burst * POOLS) + world.tally.fresh as f64 * budget.ratio.get() + 1e-9
        };
        if settings.policy == PolicyKind::Hedge {
            // What is moved away from instances that are silent asks no budget.
            let moved: u64 =
                (0..POOLS).filter_map(|pool| world.dispatcher.status(PoolId(pool))).map(|s| s.counters.moved).sum();
            let allowed = allowed(&settings.hedge.budget) + moved as f64;
            prop_assert!(world.tally.copies as f64 <= allowed, "{moved} moved, {:?}", world.tally);
        }
        let retried: u64 =
            (0..POOLS).filter_map(|pool| world.dispatcher.status(PoolId(pool))).map(|s| s.counters.retries).sum();
        // What queries needed to be found at fault is given back.
        let allowed = allowed(&settings.retry) + world.tally.given_back as f64;
        prop_assert!(retried as f64 <= allowed, "{retried} retries, {:?}", world.tally);
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
        // One at a time, so that what is idle is plain.
        let settings = PoolSettings { policy: PolicyKind::None, ahead: Duration::ZERO, ..PoolSettings::default() };
        let other = |what: &Happening| matches!(what, Happening::Change(_) | Happening::Beside { .. });
        let schedule: Vec<_> = schedule.into_iter().filter(|what| !other(what)).collect();
        let world = run(&settings, instances, &schedule);
        for pool in (0..POOLS).map(PoolId) {
            let queued = world.dispatcher.status(pool).map_or(0, |status| status.queued);
            let idle = world.instances.iter().any(|(id, present)| {
                let held = world.running().filter(|(_, held)| held.job.instance == *id).count();
                world.dispatcher.takes(*id, pool)
                    && held < usize::from(present.spec.slots)
                    && present.spec.serves.iter().any(|served| served.pool == pool)
            });
            prop_assert!(queued == 0 || !idle, "{queued} wait in {pool:?} beside an idle instance");
        }
    }
}
