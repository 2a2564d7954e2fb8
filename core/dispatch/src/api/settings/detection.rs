//! What an operator can set about instances whose answers are wrong.

use std::num::NonZeroU32;
use std::time::Duration;

use parm_durations::{Millis, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Fraction;

/// How answers are checked against what parities say of them, and what follows.
///
/// It needs a parity whose output alone predicts every member (as those of `slots` do), or two parities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DetectionSettings {
    /// Compare the predictions of every complete group with its parities. Parities run for every group then. Default
    /// false.
    pub enabled: bool,
    /// Chance that an answer of an instance that is well raises a false alarm, about. Default 1e-9.
    pub significance: Fraction,
    /// An instance is looked for that gets at least this share of its answers wrong. Default 0.5.
    pub wrong_share: Fraction,
    /// Answers of the other instances that have to be compared before anybody is suspected: how often parities are
    /// wrong about right answers is learned from them. Default 200.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub min_samples: NonZeroU32,
    /// Take suspects out of service, where the others can do without them. Default false: they are only reported.
    pub eject: bool,
    /// Milliseconds after which an ejected suspect is probed and given another chance, half suspected already. Default
    /// 60000.
    #[serde(rename = "quarantine_ms", with = "Millis")]
    pub quarantine: Duration,
    /// Milliseconds that the outputs of a group are kept for what is missing to compare them. Default 1000.
    #[serde(rename = "max_wait_ms", with = "Millis")]
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
