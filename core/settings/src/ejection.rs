//! Settings of outlier ejection: instances that answer slowly or not at all.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_durations::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Factor, Fraction};

/// Outlier ejection: slow and failing instances leave service for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EjectionSettings {
    /// Ejects slow and failing instances. Default true.
    pub enabled: bool,
    /// Service time of a slow answer, in medians of the model.
    #[serde(skip)]
    pub slow_factor: Factor,
    /// Consecutive slow answers that eject an instance: one alone may be chance, and each further one costs a late query.
    #[serde(skip)]
    pub slow_answers: NonZeroU8,
    /// Consecutive failures of a model that eject an instance for that model. Default 3.
    pub failures: NonZeroU8,
    /// Time before an ejected instance is probed; it doubles with every further ejection, up to 2 s. Default 250.
    #[serde(rename = "backoff_min_ms", with = "Millis")]
    pub backoff_min: Duration,
    /// Longest time before a probe: a probe is cheap, and a recovered instance should not be missed for longer.
    #[serde(skip)]
    pub backoff_max: Duration,
    /// Utilisation of the other instances beyond which a slow instance stays in service, and an ejected one returns. So does
    /// one if more than a job per slot waits: a slow instance hurts less than long queues.
    #[serde(skip)]
    pub max_utilisation: Fraction,
    /// Share of a model's instances that always stay in service. Default 0.3: one of three, three of ten.
    // If most fail, they are hardly the cause, and the rest would break under the load.
    pub least_in_service: Fraction,
    /// Time in which a new or readmitted instance gets only jobs that other instances have no room for. Default 1000.
    // First runs are slow, and an instance that still fails should meet few queries. A slow instance is warm and returns at once.
    // The first instances of a model are not spared.
    #[serde(rename = "slow_start_ms", with = "Millis")]
    pub slow_start: Duration,
}

impl Default for EjectionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            slow_factor: Factor::percent(300),
            slow_answers: const { NonZeroU8::new(2).unwrap() },
            failures: const { NonZeroU8::new(3).unwrap() },
            backoff_min: Duration::from_millis(250),
            backoff_max: Duration::from_secs(2),
            max_utilisation: Fraction::percent(80),
            least_in_service: Fraction::percent(30),
            slow_start: Duration::from_secs(1),
        }
    }
}
