//! Settings of outlier ejection: instances that fail or answer nothing.

use std::num::NonZeroU8;

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
    /// Share of a model's instances that always stay in service. Default 0.3: one of three, three of ten.
    // If most fail, they are hardly the cause, and the rest would break under the load.
    pub least_in_service: Fraction,
}

impl Default for EjectionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            failures: const { NonZeroU8::new(3).unwrap() },
            least_in_service: Fraction::percent(30),
        }
    }
}
