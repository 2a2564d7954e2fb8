//! Random settings of a pool: every policy, and budgets at their extremes.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::time::Duration;

use parm_encoder::Kind;
use parm_settings::{
    AgreementSettings, BatchSettings, BatchSize, BudgetSettings, CodingSettings, DetectionSettings, Factor,
    Fraction, GraceSettings, HedgeSettings, InOutage, ParmPlusSettings, Placement, PolicyKind, PoolSettings,
    StandInSettings, Unsure,
};
use proptest::prelude::*;

/// The settings below, with others that are usually constant.
pub(crate) fn settings() -> impl Strategy<Value = PoolSettings> {
    let ejection = (1..4u8, 1..3u8, 0..4u8, 0..4u8, 0..3u64, any::<bool>());
    let rare = (1..5u8, 2..5u8, 1..6u32, 0..20u64, 0..3u64, 1..4u16);
    (usual(), any::<bool>(), ejection, rare).prop_map(|(usual, wide, ejection, rare)| {
        if !wide {
            return usual;
        }
        let (failures, slow_answers, least, most, start, enabled) = ejection;
        let (attempts, copies, spare, elsewhere, delay, weight) = rare;
        let mut settings = usual;
        settings.max_attempts = NonZeroU8::new(attempts).expect("positive");
        settings.replicate.copies = NonZeroU8::new(copies).expect("positive");
        settings.spare_limit = NonZeroU32::new(spare).expect("positive");
        settings.retry_elsewhere = Duration::from_millis(5 * elsewhere);
        settings.hedge.min_delay = Duration::from_millis(delay);
        settings.weight = NonZeroU16::new(weight).expect("positive");
        let of = &mut settings.ejection;
        of.failures = NonZeroU8::new(failures).expect("positive");
        of.slow_answers = NonZeroU8::new(slow_answers).expect("positive");
        of.least_in_service = Fraction::percent(least * 33);
        of.max_utilisation = Fraction::percent(most * 33);
        of.slow_start = Duration::from_millis(500 * start);
        of.backoff_min = Duration::from_millis(20 * start);
        of.enabled = enabled;
        settings
    })
}

fn usual() -> impl Strategy<Value = PoolSettings> {
    let policy = prop_oneof![
        1 => Just(PolicyKind::None),
        1 => Just(PolicyKind::Once),
        1 => Just(PolicyKind::Equal),
        1 => Just(PolicyKind::Replicate),
        2 => Just(PolicyKind::Hedge),
        3 => Just(PolicyKind::Parm),
        4 => Just(PolicyKind::ParmPlus),
        2 => Just(PolicyKind::ApproximateBackup),
        6 => Just(PolicyKind::StandIn),
    ];
    (
        policy,
        1..20u32,
        1..4u16,
        0..5u64,
        0..30u8,
        0..4u32,
        (coding(), stand_in()),
        (any::<bool>(), placement(), any::<bool>()),
    )
        .prop_map(
            |(
                policy,
                queue,
                batch,
                delay_ms,
                percent,
                burst,
                (coding, stand_in),
                (default_answer, placement, auto),
            )| {
                // Some budgets are at their extremes: nothing is allowed, or everything.
                let (percent, burst) = match percent {
                    0..2 => (0, 0),
                    2..4 => (100, 10_000),
                    _ => (percent, burst),
                };
                let budget = BudgetSettings { ratio: Fraction::percent(percent), burst };
                PoolSettings {
                    policy,
                    placement,
                    queue_limit: NonZeroU32::new(queue).expect("positive"),
                    batch: BatchSettings {
                        max_size: NonZeroU16::new(batch)
                            .filter(|_| !auto)
                            .map_or(BatchSize::Auto, BatchSize::Fixed),
                        max_delay: Duration::from_millis(delay_ms),
                    },
                    // Some settings count a few milliseconds as fast.
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

fn placement() -> impl Strategy<Value = Placement> {
    prop_oneof![3 => Just(Placement::Speed), 1 => Just(Placement::Turns)]
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

fn stand_in() -> impl Strategy<Value = StandInSettings> {
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 0..4u8);
    (1..150u8, 1..9u8, 0..60u8, 1..20u32, 0..20u64, switches).prop_map(
        |(cost, max_rows, bound, window, grace_ms, (spare, late, wait, eject, budget))| StandInSettings {
            cost: Factor::percent(cost.into()),
            spare,
            late,
            late_budget: match budget {
                0 => BudgetSettings { ratio: Fraction::percent(0), burst: 0 },
                1 => BudgetSettings { ratio: Fraction::percent(100), burst: 1000 },
                _ => BudgetSettings { ratio: Fraction::percent(10), burst: 2 },
            },
            max_rows: NonZeroU8::new(max_rows).expect("positive"),
            grace: GraceSettings { cold: Duration::from_millis(grace_ms), ..GraceSettings::default() },
            bound: Fraction::percent(bound),
            bound_window: NonZeroU32::new(window).expect("positive"),
            in_outage: if wait { InOutage::Answer } else { InOutage::Fail },
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
