//! At what times a fault holds.

use serde::{Deserialize, Serialize};

use crate::Error;

/// The times of a fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum When {
    /// All the time.
    Always,
    /// Once.
    Once {
        /// Milliseconds from the start of the run.
        at_ms: u64,
        /// Milliseconds that it lasts.
        length_ms: u64,
    },
    /// Again and again, at even distances.
    Every {
        /// Milliseconds from the start of the run to the first time.
        at_ms: u64,
        /// Milliseconds from one beginning to the next.
        every_ms: u64,
        /// Milliseconds that each lasts.
        length_ms: u64,
    },
    /// At random: episodes of one length between exponential pauses, in equilibrium from the start.
    Episodes {
        /// Share of the time that they take up.
        share: f64,
        /// Milliseconds that each lasts.
        length_ms: u64,
    },
}

impl When {
    /// Refuses times that overlap or never end.
    pub(crate) fn check(&self, fault: usize) -> Result<(), Error> {
        let bad = |name, value, range| Err(Error::BadFault { fault, name, value, range });
        match *self {
            When::Episodes { share, .. } if !(0.0..1.0).contains(&share) => {
                bad("share", share, "from 0 to below 1: for all the time use `always`")
            }
            When::Episodes { length_ms: 0, .. } | When::Once { length_ms: 0, .. } => {
                bad("length_ms", 0.0, "above 0")
            }
            When::Every { every_ms, length_ms, .. } if length_ms == 0 || length_ms >= every_ms => {
                bad("length_ms", length_ms as f64, "above 0 and below every_ms")
            }
            _ => Ok(()),
        }
    }
}
