//! Settings for instances that several frontends use.

use std::num::NonZeroU8;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Use of instances that other frontends use as well, if these give tokens.
///
/// The times fit networks of up to a few milliseconds; a wrong one costs messages and no query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenSettings {
    /// Instances at which a waiting query reserves. More find an idle instance sooner and cost more messages. Default 3.
    pub reservations: NonZeroU8,
    /// Time after which a query that still waits reserves at as many more instances.
    #[serde(skip)]
    pub widen: Duration,
    /// Time after which a reservation without a result is repeated, as its message may be lost.
    #[serde(skip)]
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
