//! Settings of a model's dispatch.
//!
//! Fields with `skip` are constants outside of tests: no operator has a reason to choose them, so files and changes at run time
//! reject their names, and [`PoolSettings::with_constants_of`] carries them from settings to settings.

use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use parm_durations::{Millis, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BatchSettings, BudgetSettings, CodingSettings, EjectionSettings, Fraction, HedgeSettings, Placement,
    PolicyKind, StandInSettings,
};

/// Dispatch of the queries of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolSettings {
    /// Redundancy that hides slow and dead instances. Default `hedge`, which needs no bundles.
    pub policy: PolicyKind,
    /// Choice of the instance for a query. Default `speed`; the policy `equal` takes turns in any case.
    pub placement: Placement,
    /// Queries of each share that may wait for an instance. More are rejected at once (load shedding). Default 1024.
    // A longer queue only makes all queries late.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub queue_limit: NonZeroU32,
    /// Batching of queries.
    pub batch: BatchSettings,
    /// Attempts for a query when instances fail, the first included. Default 3.
    // A query that kills instances must not kill them all.
    pub max_attempts: NonZeroU8,
    /// Budget of retries, so that an outage does not multiply its own load: a fifth more jobs, and up to 100 that are saved up.
    #[serde(skip)]
    pub retry: BudgetSettings,
    /// Hedges: duplicates of late jobs.
    pub hedge: HedgeSettings,
    /// Number of instances that run each batch under `replicate`. A third one multiplies the work for hardly shorter tails.
    #[serde(skip)]
    pub copies: NonZeroU8,
    /// Coding groups and parities, under `parm` and `parm+`.
    pub coding: CodingSettings,
    /// Stand-ins, under `stand-in`: a cheaper model answers late queries.
    pub stand_in: StandInSettings,
    /// Outlier ejection: instances that fail or answer nothing leave service for a while.
    pub ejection: EjectionSettings,
    /// Time that a query waits without an instance in service, before it is rejected. Default 1000.
    #[serde(rename = "no_instance_grace_ms", with = "Millis")]
    pub no_instance_grace: Duration,
    /// Cheaper model of the policy `approximate-backup`. Its tensors are those of the deployed model. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_model: Option<String>,
    /// Returns the model's default answer, instead of an error, when the deadline expires. Default false.
    pub default_answer: bool,
}

impl PoolSettings {
    /// These settings with the constants of others. A change at run time goes through JSON, which leaves them out.
    #[must_use]
    pub fn with_constants_of(mut self, of: &Self) -> Self {
        self.retry = of.retry.clone();
        self.copies = of.copies;
        self.hedge.budget.burst = of.hedge.budget.burst;
        self.stand_in.hedge = of.stand_in.hedge;
        self
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            policy: PolicyKind::Hedge,
            placement: Placement::default(),
            queue_limit: const { NonZeroU32::new(1024).unwrap() },
            batch: BatchSettings::default(),
            max_attempts: const { NonZeroU8::new(3).unwrap() },
            retry: BudgetSettings { ratio: Fraction::percent(20), burst: 100 },
            hedge: HedgeSettings::default(),
            copies: const { NonZeroU8::new(2).unwrap() },
            coding: CodingSettings::default(),
            stand_in: StandInSettings::default(),
            ejection: EjectionSettings::default(),
            no_instance_grace: Duration::from_secs(1),
            backup_model: None,
            default_answer: false,
        }
    }
}
