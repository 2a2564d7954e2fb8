//! Recordings of query arrivals and job durations, for `parm simulate` and `parm tune`.
//!
//! Events are pushed to a bounded queue where they happen; the dispatcher's lock is held only for the push. A listener
//! writes them as JSON lines. A slow listener loses events, never queries, and the recording states how many were lost.
//! Tensors and other data of clients are not recorded.
//!
//! The format of the lines is `parm_settings::recording`. Reading order: `recorder` (events to listeners), `recording`
//! (events to lines), `file` (lines to a file).

mod config;
mod file;
mod recorder;
mod recording;

pub use config::Config;
pub use file::Writing;
pub(crate) use recorder::{Done, Note, Recorder};
pub use recording::Recording;
