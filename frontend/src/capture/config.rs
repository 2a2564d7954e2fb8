//! Settings of captured queries.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use parm_dispatch::Fraction;
use parm_durations::{PositiveSeconds, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Queries and answers that are kept, to make stand-ins from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Folder for inputs of live requests and what the deployed model answered. It holds what clients sent, as they sent it:
    /// keep it where such data may be, and one for each frontend. Default: none, nothing is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Share of the requests that is kept, from 0 to 1. Default 0.01.
    pub share: Fraction,
    /// Megabytes that the folder holds at most; the oldest go first. Default 1024.
    #[serde(with = "Whole::<1, 1_000_000_000>")]
    pub max_mb: NonZeroU64,
    /// Seconds after which what was kept is removed, so that nothing stays for ever. Default 604800: a week.
    #[serde(rename = "max_age_s", with = "PositiveSeconds")]
    pub max_age: Duration,
    /// Requests that may wait to be written; what comes while as many wait is dropped and counted. Default 256.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub buffer: NonZeroUsize,
    /// Megabytes that such requests may hold. Default 64.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub buffer_mb: NonZeroUsize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            folder: None,
            share: Fraction::percent(1),
            max_mb: const { NonZeroU64::new(1024).unwrap() },
            max_age: Duration::from_secs(7 * 24 * 3600),
            buffer: const { NonZeroUsize::new(256).unwrap() },
            buffer_mb: const { NonZeroUsize::new(64).unwrap() },
        }
    }
}
