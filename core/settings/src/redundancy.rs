//! Settings of redundancy: the policy and its budgets.

use std::time::Duration;

use parm_durations::Micros;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetSettings {
    /// Extra jobs per job in the long run. Default 0.1.
    pub ratio: Fraction,
    /// Extra jobs that may run in a burst. The ratio bounds the cost, and at the rates at which many jobs are late together the
    /// bucket refills within milliseconds.
    #[serde(skip)]
    pub burst: u32,
}

/// Hedges: duplicates of late jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HedgeSettings {
    /// Budget of hedges; unused ones are saved up to 10.
    pub budget: BudgetSettings,
    /// Earliest age of a late job. Lower it only if a hop takes less. Default 1000.
    // A hedge that saves less than a hop costs is a loss, and to watch every job of a fast model costs more than its answer.
    #[serde(rename = "min_delay_us", with = "Micros")]
    pub min_delay: Duration,
}

impl Default for BudgetSettings {
    /// The budget of hedges.
    fn default() -> Self {
        Self { ratio: Fraction::percent(10), burst: 10 }
    }
}

impl Default for HedgeSettings {
    fn default() -> Self {
        Self { budget: BudgetSettings::default(), min_delay: Duration::from_millis(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_of_a_budget_keep_their_defaults() {
        let read = |text: &str| toml::from_str::<crate::PoolSettings>(text);
        let settings = read("hedge = { budget = { ratio = 0.2 } }").unwrap();
        assert_eq!(settings.hedge.budget, BudgetSettings { ratio: Fraction::percent(20), burst: 10 });
        for wrong in ["{ rate = 0.2 }", "{ burst = 7 }", "{ ratio = 2.0 }"] {
            assert!(read(&format!("hedge = {{ budget = {wrong} }}")).is_err(), "{wrong}");
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
