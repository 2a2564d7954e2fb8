//! Settings of redundancy: the policy and its budgets.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_durations::Micros;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::Fraction;

/// A redundancy policy.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// No redundancy.
    None,
    /// No redundancy and no retries: a query is sent to one instance, once. For requests that change something.
    Once,
    /// No redundancy; all instances serve the deployed model. The baseline of the paper.
    Equal,
    /// Runs every batch on several instances at once.
    Replicate,
    /// Runs a late batch once more on another instance, within a budget.
    #[default]
    Hedge,
    /// Runs parities of groups on instances of their own, as the paper does. The first of prediction and reconstruction
    /// is returned.
    Parm,
    /// Runs parities on idle instances, returns reconstructions of late queries only, and hedges within a budget.
    #[serde(rename = "parm+")]
    ParmPlus,
    /// Runs a cheaper model for each query, on instances of its own, and answers late ones with it.
    ApproximateBackup,
    /// Runs a cheaper model for late queries, on the next free instance. Approximate answers are bounded.
    StandIn,
}

/// The choice of the instance for a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The instance on which the query is expected to end first, as far as their speeds are known to differ.
    #[default]
    Speed,
    /// The next idle instance in turn. For comparisons.
    Turns,
}

impl PolicyKind {
    /// All policies.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::Once,
        Self::Equal,
        Self::Replicate,
        Self::Hedge,
        Self::Parm,
        Self::ParmPlus,
        Self::ApproximateBackup,
        Self::StandIn,
    ];

    /// Whether the policy makes coding groups.
    pub fn is_coded(self) -> bool {
        matches!(self, PolicyKind::Parm | PolicyKind::ParmPlus)
    }
}

/// Budget of extra jobs, as a token bucket: a job adds a part of a token, an extra job takes one.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct BudgetSettings {
    /// Extra jobs per job in the long run.
    pub ratio: Fraction,
    /// Extra jobs that may run in a burst. The ratio bounds the cost, and at the rates at which many jobs are late together the
    /// bucket refills within milliseconds.
    #[serde(skip)]
    pub burst: u32,
}

/// A budget with `BURST`, and `PERCENT` if its ratio is missing.
pub(crate) enum UsualBudget<const PERCENT: u8, const BURST: u32> {}

impl<const PERCENT: u8, const BURST: u32> UsualBudget<PERCENT, BURST> {
    pub(crate) const SETTINGS: BudgetSettings =
        BudgetSettings { ratio: Fraction::percent(PERCENT), burst: BURST };

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BudgetSettings, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, expecting = "a table with ratio")]
        struct Given {
            ratio: Option<Fraction>,
        }
        let Given { ratio } = Given::deserialize(from)?;
        let usual = Self::SETTINGS;
        Ok(BudgetSettings { ratio: ratio.unwrap_or(usual.ratio), ..usual })
    }
}

/// The budget of hedges.
type Hedges = UsualBudget<10, 10>;

/// Hedges: duplicates of late jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HedgeSettings {
    /// Budget of hedges; unused ones are saved up to 10.
    #[serde(deserialize_with = "Hedges::deserialize")]
    pub budget: BudgetSettings,
    /// Earliest age of a late job. Lower it only if a hop takes less. Default 1000.
    // A hedge that saves less than a hop costs is a loss, and to watch every job of a fast model costs more than its answer.
    #[serde(rename = "min_delay_us", with = "Micros")]
    pub min_delay: Duration,
}

/// Replicas, under `replicate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReplicateSettings {
    /// Number of instances that run each batch. Default 2.
    pub copies: NonZeroU8,
}

impl Default for HedgeSettings {
    fn default() -> Self {
        Self { budget: Hedges::SETTINGS, min_delay: Duration::from_millis(1) }
    }
}

impl Default for ReplicateSettings {
    fn default() -> Self {
        Self { copies: const { NonZeroU8::new(2).unwrap() } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_of_a_budget_keep_their_defaults() {
        let read = |text: &str| toml::from_str::<crate::PoolSettings>(text);
        let settings = read("hedge = { budget = { ratio = 0.2 } }\nretry = {}");
        let settings = settings.unwrap();
        let budget = |percent, burst| BudgetSettings { ratio: Fraction::percent(percent), burst };
        assert_eq!(settings.hedge.budget, budget(20, 10));
        assert_eq!(settings.retry, budget(20, 100));
        for wrong in
            ["hedge = { budget = { rate = 0.2 } }", "retry = { burst = 7 }", "retry = { ratio = 2.0 }"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn list_of_policies_is_that_of_the_schema() {
        let schema = schemars::schema_for!(PolicyKind).to_value();
        let known = schema["oneOf"].as_array().unwrap().iter().map(|one| one["const"].clone());
        let listed = PolicyKind::ALL.map(|kind| serde_json::to_value(kind).unwrap());
        assert_eq!(known.collect::<Vec<_>>(), listed);
    }
}
