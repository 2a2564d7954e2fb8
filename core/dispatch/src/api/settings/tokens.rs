//! What an operator can set about instances that this frontend shares with others.

use std::num::NonZeroU8;
use std::time::Duration;

use parm_durations::{Micros, Millis};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How queries find instances that other frontends use as well, where these give tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenSettings {
    /// Instances at which a query reserves that finds no idle one. Fewer cost fewer messages, more find an idle instance
    /// sooner. Default 3.
    pub reservations: NonZeroU8,
    /// Microseconds after which a query that still waits reserves at as many instances more. Default 500.
    #[serde(rename = "widen_us", with = "Micros")]
    pub widen: Duration,
    /// Milliseconds after which a reservation is made again that has led to nothing: its message may be lost. Default 50.
    #[serde(rename = "renew_ms", with = "Millis")]
    pub renew: Duration,
}

impl Default for TokenSettings {
    fn default() -> Self {
        Self {
            reservations: const { NonZeroU8::new(3).unwrap() },
            widen: Duration::from_micros(500),
            renew: Duration::from_millis(50),
        }
    }
}
