//! The times at which a fault applies.

use std::time::Duration;

use parm_durations::Millis;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The times of a fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[serde(expecting = "a table such as { kind = \"always\" }")]
pub enum When {
    /// The whole run.
    Always,
    /// Once.
    Once {
        /// Milliseconds from the start of the run.
        #[serde(rename = "at_ms", with = "Millis")]
        at: Duration,
        /// Milliseconds that it lasts.
        #[serde(rename = "length_ms", with = "Millis")]
        length: Duration,
    },
    /// Repeatedly, at a fixed interval.
    Every {
        /// Milliseconds from the start of the run to the first time.
        #[serde(rename = "at_ms", with = "Millis")]
        at: Duration,
        /// Milliseconds from one start to the next.
        #[serde(rename = "every_ms", with = "Millis")]
        every: Duration,
        /// Milliseconds that each lasts.
        #[serde(rename = "length_ms", with = "Millis")]
        length: Duration,
    },
    /// At random: episodes of one length between exponential pauses, in equilibrium from the start.
    Episodes {
        /// Share of the time that they take up.
        share: f64,
        /// Milliseconds that each lasts.
        #[serde(rename = "length_ms", with = "Millis")]
        length: Duration,
    },
}

impl When {
    /// Rejects times that overlap or never end.
    pub(crate) fn check(&self, fault: usize) -> Result<(), Error> {
        let bad = |name, value, range| Err(Error::BadFault { fault, name, value, range });
        match *self {
            When::Episodes { share, .. } if !(0.0..1.0).contains(&share) => {
                bad("share", share, "from 0 to below 1: use `always` for the whole run")
            }
            When::Episodes { length, .. } | When::Once { length, .. } if length.is_zero() => {
                bad("length_ms", 0.0, "above 0")
            }
            When::Every { every, length, .. } if length.is_zero() || length >= every => {
                bad("length_ms", length.as_millis() as f64, "above 0 and below every_ms")
            }
            _ => Ok(()),
        }
    }
}
