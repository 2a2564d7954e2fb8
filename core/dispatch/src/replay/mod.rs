//! Event tapes: the latest events of a dispatcher, written when it panics and replayed as a test.
//!
//! Problem: a panic in the dispatcher ends the process, and its cause is lost with the memory. The state machine
//! is pure: the same seed and the same events at the same times lead to the same actions, and to the same panic.
//!
//! Choice: [`Tape`] keeps the latest events in a ring, with the ids of the jobs and groups that each started.
//! Lasting state of evicted events (settings, instances, costs) is kept separately, the latest of each, and comes
//! first on a tape. A tape without evicted events is complete, and its [`Replay`] is exact. Otherwise the replay
//! begins with those settings and instances, without older queries and measured times. Its jobs have other ids, so
//! ids are translated, and events about older jobs are skipped.
//!
//! Rejected: snapshots of the whole state (every field of every type would have to be written and read); all
//! events on disk (a write for each event, and no bound).

mod played;
mod tape;

pub use played::{Replay, Replayed, Unreadable};
pub use tape::Tape;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::{Event, GroupId, InstanceId, JobId, PoolId, PoolSettings, Rows, ShareId, Terms, Time};

/// The format that this version writes and reads.
const FORMAT: u32 = 1;

/// A line of a tape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TapeLine {
    /// The first line.
    Tape(Box<Head>),
    /// The lasting state of an evicted event.
    Before(Event),
    /// An event, in order.
    Event(TapedEvent),
}

/// The initial state of the dispatcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    format: u32,
    seed: u64,
    traced: bool,
    /// Events that were evicted: a tape without any is complete.
    evicted: u64,
    default: PoolSettings,
    pools: Vec<(PoolId, PoolSettings)>,
    shares: Vec<(ShareId, Terms)>,
}

/// An event with its time, and the jobs and groups that it started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TapedEvent {
    at: Time,
    event: Event,
    #[serde(default, skip_serializing_if = "SmallVec::is_empty")]
    started: SmallVec<[Started; 1]>,
}

/// Something that the dispatcher named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Started {
    Job { id: JobId, instance: InstanceId, rows: Rows },
    Group { id: GroupId },
}

#[cfg(test)]
pub(crate) use tests::PLANTED;

#[cfg(test)]
mod tests;
