//! Settings of outlier ejection: instances that fail or answer nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Outlier ejection: instances that fail or answer nothing leave service for a while.
///
/// Three failures of a model in a row eject an instance for it. Three of ten instances always stay in service: if most fail, they
/// are hardly the cause, and the rest would break under the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EjectionSettings {
    /// Ejects instances that fail or answer nothing. Default true.
    pub enabled: bool,
}

impl Default for EjectionSettings {
    fn default() -> Self {
        Self { enabled: true }
    }
}
