//! Settings of outlier ejection: instances that fail or answer nothing.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_durations::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Fraction;

/// Outlier ejection: instances that fail or answer nothing leave service for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EjectionSettings {
    /// Ejects instances that fail or answer nothing. Default true.
    pub enabled: bool,
    /// Consecutive failures of a model that eject an instance for that model. Default 3.
    pub failures: NonZeroU8,
    /// Time before a query tries an ejected instance again; it doubles with every further ejection, up to 2 s. Default 250.
    #[serde(rename = "backoff_min_ms", with = "Millis")]
    pub backoff_min: Duration,
    /// Share of a model's instances that always stay in service. Default 0.3: one of three, three of ten.
    // If most fail, they are hardly the cause, and the rest would break under the load.
    pub least_in_service: Fraction,
}

impl Default for EjectionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            failures: const { NonZeroU8::new(3).unwrap() },
            backoff_min: Duration::from_millis(250),
            least_in_service: Fraction::percent(30),
        }
    }
}
