//! What an operator can set about dispatch, pool by pool. Every bound of the dispatcher is a field here.

mod coding;
mod detection;
mod ejection;
mod factor;
mod fraction;
mod redundancy;
mod stand_in;
mod tokens;

use std::collections::BTreeMap;
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::time::Duration;

use parm_durations::{Micros, Millis, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PoolId, ShareId, Terms};
pub use coding::{CodingSettings, GraceSettings, ParmPlusSettings, Unsure, Usual};
pub use detection::DetectionSettings;
pub use ejection::EjectionSettings;
pub use factor::{Factor, NotAFactor};
pub use fraction::{Fraction, NotAFraction};
pub use redundancy::{BudgetSettings, HedgeSettings, PolicyKind, ReplicateSettings};
pub use stand_in::{AgreementSettings, StandInSettings};
pub use tokens::TokenSettings;

/// The settings of a dispatcher.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// For pools without settings of their own.
    pub default: PoolSettings,
    /// Per pool.
    pub pools: BTreeMap<PoolId, PoolSettings>,
    /// Shares that are set up, beside the pools' own.
    pub shares: BTreeMap<ShareId, Terms>,
}

/// The settings of one pool: one deployed model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolSettings {
    /// What hides slow and dead instances: `none`, `equal`, `replicate`, `hedge`, `parm`, `parm+`,
    /// `approximate-backup` or `stand-in`. Default `hedge`, which needs no parity models.
    pub policy: PolicyKind,
    /// Queries of each share that may wait for an instance; one more is refused at once, because a longer queue only makes
    /// everybody late. Default 1024.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub queue_limit: NonZeroU32,
    /// Priority of a query that names none; 1 is served first, 255 last. Where shares are set up it counts within a share.
    /// Default 128.
    pub default_priority: NonZeroU8,
    /// So many times the instances' time of a model of weight 1, while queries of both wait for the same instances. What a
    /// model does not use others may. A model that is in a share of `[share.NAME]` has that one's weight. Default 1.
    pub weight: NonZeroU16,
    /// How queries are put together into batches.
    pub batch: BatchSettings,
    /// Microseconds of work that an instance may hold. A model of which fewer than four batches fit is sent one at a time for each
    /// slot, a faster one as many as fit, at most 16; what is still there when it falls silent for as long is given to others. Under
    /// `none`, `hedge` and `stand-in`; the other policies, which count on a group's or a query's jobs being apart, always send
    /// one. 0 is one for all. Default 2000.
    #[serde(rename = "ahead_us", with = "Micros")]
    pub ahead: Duration,
    /// Times a query may be tried when instances fail it, the first included: a query that kills instances must not
    /// kill them all. Default 3.
    pub max_attempts: NonZeroU8,
    /// Milliseconds that a retry waits at most for another instance than the one that failed it, while service times are
    /// not known; then for as long as all but the slowest jobs take. Default 100.
    #[serde(rename = "retry_elsewhere_ms", with = "Millis")]
    pub retry_elsewhere: Duration,
    /// How many retries of failed batches are allowed, so that an outage does not multiply its own load.
    pub retry: BudgetSettings,
    /// How late work is duplicated under `hedge`.
    pub hedge: HedgeSettings,
    /// How work is copied under `replicate`.
    pub replicate: ReplicateSettings,
    /// How queries are coded under `parm` and `parm+`.
    pub coding: CodingSettings,
    /// How a cheaper model stands in for late predictions under `stand-in`.
    pub stand_in: StandInSettings,
    /// How queries find instances that other frontends use as well.
    pub tokens: TokenSettings,
    /// When instances are taken out of service, and how they come back.
    pub ejection: EjectionSettings,
    /// Jobs of spare work (parities, replicas, backups) that may wait for an idle instance; more are not made, because
    /// spare work that waits long comes too late to help. Default 256.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub spare_limit: NonZeroU32,
    /// Milliseconds that a query waits for a first instance (or one that works) before it is refused. Default 1000.
    #[serde(rename = "no_instance_grace_ms", with = "Millis")]
    pub no_instance_grace: Duration,
    /// The cheaper model of the policy `approximate-backup`, by name: it takes and gives the same tensors. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_model: Option<String>,
    /// Answer with the model's default answer when the deadline passes, instead of an error. Default false.
    pub default_answer: bool,
}

/// How queries are put together into batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchSettings {
    /// Most queries in a batch. Default 1: every query is sent alone, at once.
    pub max_size: NonZeroU16,
    /// Microseconds that a query may wait for others to share its batch while an instance is idle. Default 0.
    #[serde(rename = "max_delay_us", with = "Micros")]
    pub max_delay: Duration,
}

impl Settings {
    /// One set of settings for every pool.
    pub fn uniform(pool: PoolSettings) -> Self {
        Self { default: pool, pools: BTreeMap::new(), shares: BTreeMap::new() }
    }

    /// The settings of a pool.
    pub fn pool(&self, id: PoolId) -> &PoolSettings {
        self.pools.get(&id).unwrap_or(&self.default)
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            policy: PolicyKind::Hedge,
            queue_limit: const { NonZeroU32::new(1024).unwrap() },
            default_priority: const { NonZeroU8::new(128).unwrap() },
            weight: NonZeroU16::MIN,
            batch: BatchSettings::default(),
            ahead: Duration::from_millis(2),
            max_attempts: const { NonZeroU8::new(3).unwrap() },
            retry_elsewhere: Duration::from_millis(100),
            retry: BudgetSettings { ratio: Fraction::percent(20), burst: 100 },
            hedge: HedgeSettings::default(),
            replicate: ReplicateSettings::default(),
            coding: CodingSettings::default(),
            stand_in: StandInSettings::default(),
            tokens: TokenSettings::default(),
            ejection: EjectionSettings::default(),
            spare_limit: const { NonZeroU32::new(256).unwrap() },
            no_instance_grace: Duration::from_secs(1),
            backup_model: None,
            default_answer: false,
        }
    }
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self { max_size: NonZeroU16::MIN, max_delay: Duration::ZERO }
    }
}
