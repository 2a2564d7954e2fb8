//! Settings for instances whose answers are wrong.

use std::num::NonZeroU32;
use std::time::Duration;

use parm_durations::Whole;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Fraction;

/// Detection of wrong answers by parities. It needs the code `slots`, or two parities.
///
/// One parity alone must predict every member, as those of `slots` do; otherwise two parities are needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DetectionSettings {
    /// Compares the predictions of every group with its parities, which then run for every group. Default false.
    pub enabled: bool,
    /// Probability of a false alarm for each answer: about one in a billion answers.
    #[serde(skip)]
    pub significance: Fraction,
    /// Share of wrong answers that the test assumes of a faulty instance.
    #[serde(skip)]
    pub wrong_share: Fraction,
    /// Compared answers of the other instances before an instance is suspected. Lower it for short experiments. Default 200.
    // They show how often parities disagree with right answers.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub min_samples: NonZeroU32,
    /// Ejects suspects, if the others can bear the load. Otherwise they are only reported. Default false.
    pub eject: bool,
    /// Time after which an ejected suspect is probed and returns, half suspected. A new fault is found within it.
    #[serde(skip)]
    pub quarantine: Duration,
    /// Time that the outputs of a group are kept until all are there to compare. Answers that are later are rare.
    #[serde(skip)]
    pub max_wait: Duration,
}

impl Default for DetectionSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            significance: Fraction::billionths(1),
            wrong_share: Fraction::percent(50),
            min_samples: const { NonZeroU32::new(200).unwrap() },
            eject: false,
            quarantine: Duration::from_secs(60),
            max_wait: Duration::from_secs(1),
        }
    }
}
