//! Settings of recordings.

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
    /// Folder for the dispatcher's latest events if it panics, one file of about 2 MB for each crash: ids, times and settings, no
    /// inputs or answers. Set it where the usual folder is lost with the process. Default: none, that is the system's folder for
    /// temporary files under `parm serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash_folder: Option<PathBuf>,
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
            crash_folder: None,
            max_mb: const { NonZeroU64::new(1024).unwrap() },
            buffer: const { NonZeroUsize::new(65_536).unwrap() },
        }
    }
}
