//! What an operator can set about redundancy: which policy, and what it may spend.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_durations::{Micros, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Factor, Fraction};

/// A redundancy policy.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// No redundancy.
    None,
    /// No redundancy, the instances that redundancy would cost all serving the deployed model: the baseline.
    Equal,
    /// Every batch on several instances at once.
    Replicate,
    /// A late batch once more on another instance, within a budget.
    #[default]
    Hedge,
    /// The paper's: a parity of every group on instances of their own, the first of prediction and reconstruction wins.
    Parm,
    /// Parities on idle instances, reconstructions only for late queries, hedges within a budget.
    #[serde(rename = "parm+")]
    ParmPlus,
    /// A cheaper model on instances of its own, for late queries.
    ApproximateBackup,
    /// A cheaper model on idle instances, and on the next free one for late queries, within a bound on approximate answers;
    /// hedges within a budget.
    StandIn,
}

impl PolicyKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Equal,
        Self::Replicate,
        Self::Hedge,
        Self::Parm,
        Self::ParmPlus,
        Self::ApproximateBackup,
        Self::StandIn,
    ];

    /// Whether it makes coding groups.
    pub fn is_coded(self) -> bool {
        matches!(self, PolicyKind::Parm | PolicyKind::ParmPlus)
    }
}

/// How much extra work is allowed, as a token bucket: a job earns a share of a token, an extra job costs one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetSettings {
    /// Extra jobs per job, in the long run.
    pub ratio: Fraction,
    /// Extra jobs that may come together, also at the start.
    #[serde(with = "Whole::<0, 1_000_000>")]
    pub burst: u32,
}

/// How late work is duplicated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HedgeSettings {
    /// Duplicates allowed. Default: `ratio` 0.1, `burst` 10. The ratio also sets how late is late: slower than
    /// 1 - ratio of all jobs.
    pub budget: BudgetSettings,
    /// A job is never called late before this many medians of its pool's service time. Default 1.25.
    pub median_factor: Factor,
    /// Microseconds before which a job is never called late. A duplicate that saves less than a hop costs is a loss, and
    /// watching every job of a fast model so closely costs more than its answer. Default 1000.
    #[serde(rename = "min_delay_us", with = "Micros")]
    pub min_delay: Duration,
}

/// How work is copied under `replicate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReplicateSettings {
    /// Instances that each batch runs on. Default 2.
    pub copies: NonZeroU8,
}

impl Default for HedgeSettings {
    fn default() -> Self {
        Self {
            budget: BudgetSettings { ratio: Fraction::percent(10), burst: 10 },
            median_factor: Factor::percent(125),
            min_delay: Duration::from_millis(1),
        }
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
    fn the_list_of_policies_is_the_one_of_the_settings() {
        let schema = schemars::schema_for!(PolicyKind).to_value();
        let known = schema["oneOf"].as_array().unwrap().iter().map(|one| one["const"].clone());
        let listed = PolicyKind::ALL.map(|kind| serde_json::to_value(kind).unwrap());
        assert_eq!(known.collect::<Vec<_>>(), listed);
    }
}
