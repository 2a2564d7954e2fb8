//! Captures a share of the queries with the deployed model's answers, to make stand-ins from.
//!
//! A sampled request is handed over when it is answered. This costs one atomic read, and for sampled requests a push to
//! a bounded queue. A separate thread writes. If it is too slow, requests are dropped and counted, never delayed. If it
//! cannot write at all (full disk, missing folder), the capture ends with one line in the log and serving goes on.
//! Answers by anything but the deployed model are omitted; only their inputs are kept.
//!
//! The format is that of `parm_captures`.

mod sampler;

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use parm_settings::Fraction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use sampler::Sampler;

/// Captures of queries and answers, from which stand-ins are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Folder for the inputs of live requests and the answers of the deployed model. It holds the data of clients: restrict
    /// its permissions. Each frontend needs its own. Default: none, no captures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Share of the requests that is captured. Default 0.01.
    pub share: Fraction,
    /// Largest size of the folder in megabytes: many times what a search reads. The oldest captures are removed first.
    #[serde(skip)]
    pub max_mb: NonZeroU64,
    /// Age at which captures are removed: a week has every hour of the traffic.
    #[serde(skip)]
    pub max_age: Duration,
    /// Requests that may wait to be written; more are dropped and counted. A sample may lose some.
    #[serde(skip)]
    pub buffer: NonZeroUsize,
    /// Megabytes that these requests may hold: little next to `server.max_bytes_in_flight`.
    #[serde(skip)]
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
