//! What an operator can set about instances that answer slowly or not at all.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_durations::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Factor, Fraction};

/// When instances are taken out of service, and how they come back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EjectionSettings {
    /// Take slow and failing instances out of service. Default true.
    pub enabled: bool,
    /// An answer is slow beyond this many medians of the pool's service time. Default 3.
    pub slow_factor: Factor,
    /// Slow answers in a row that eject an instance. Default 2.
    pub slow_answers: NonZeroU8,
    /// Failures in a row of one model that take an instance out of service for that model. Default 3.
    pub failures: NonZeroU8,
    /// Milliseconds before the first probe of an ejected instance; doubles with every ejection that follows. Default 250.
    #[serde(rename = "backoff_min_ms", with = "Millis")]
    pub backoff_min: Duration,
    /// Milliseconds that the wait for a probe never exceeds. Default 2000.
    #[serde(rename = "backoff_max_ms", with = "Millis")]
    pub backoff_max: Duration,
    /// A slow instance stays in service where the others would be busier than this without it, or where more than a
    /// job per slot waits; and those that were ejected are called back then. Default 0.8.
    pub max_utilisation: Fraction,
    /// Share of a model's instances that stay in service however often they fail: where most fail it is hardly they that
    /// are broken, and the few that are left would break under the load. Default 0.3: one of three, three of ten.
    pub least_in_service: Fraction,
    /// Milliseconds during which an instance that came, or came back after failures or wrong answers, gets only what the
    /// others have no room for: first runs are slow ones, and one that is not well yet should meet few queries. One that
    /// was only slow is warm, and comes back at once. Nobody is spared where nothing has run yet. Default 1000.
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
