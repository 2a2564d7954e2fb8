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
    /// File to record to, as JSON lines. An existing file is kept as `FILE.old`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Folder for the latest events of a dispatcher that panics, about 2 MB for each crash, without inputs and answers. Set
    /// it if temporary files are lost with the process. Default: none, the system's temporary folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash_folder: Option<PathBuf>,
    /// Size at which a recording ends. Default 1024: about 12 million queries.
    #[serde(with = "Whole::<1, 1_000_000_000>")]
    pub max_mb: NonZeroU64,
    /// Notes that may wait to be written; more are dropped and counted. A disk that stalls for a second loses none at 60,000
    /// notes a second.
    #[serde(skip)]
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
