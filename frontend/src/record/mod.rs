//! Recordings of query arrivals and job durations, for `parm simulate` and `parm tune`.
//!
//! Events are pushed to a bounded queue where they happen; the dispatcher's lock is held only for the push. A listener
//! writes them as JSON lines. A slow listener loses events, never queries, and the recording states how many were lost.
//! Tensors and other data of clients are not recorded.
//!
//! The format of the lines is `parm_settings::recording`.

mod file;
mod recording;

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use parm_durations::Whole;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use file::Writing;
pub use recording::Recording;

pub(crate) use recording::{Done, Note, Recorder};

/// Recordings of arrivals and service times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// File to record to, as JSON lines. An existing file is kept as `FILE.old`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
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
            max_mb: const { NonZeroU64::new(1024).unwrap() },
            buffer: const { NonZeroUsize::new(65_536).unwrap() },
        }
    }
}
