//! What an operator can set about recordings.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use parm_durations::Whole;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Recordings of arrivals and service times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// File to record to from the start (JSON lines); one that exists is kept as `FILE.old`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Megabytes after which the file is left as it is. Default 1024: about 12 million queries.
    #[serde(with = "Whole::<1, 1_000_000_000>")]
    pub max_mb: NonZeroU64,
    /// Notes that may wait to be written; what comes while as many wait is dropped and counted. Default 65536.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub buffer: NonZeroUsize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file: None,
            max_mb: const { NonZeroU64::new(1024).unwrap() },
            buffer: const { NonZeroUsize::new(65_536).unwrap() },
        }
    }
}
