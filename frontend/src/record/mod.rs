//! Recordings: when queries arrived and how long instances took, for `parm simulate` and `parm tune`.
//!
//! What is noted is noted where it happens, under no lock of the dispatcher's longer than a push to a bounded queue takes;
//! whoever listens writes it out as JSON lines. A listener that is too slow loses notes, never queries: what it lost is
//! counted and written down. Tensors are not recorded, nor anything else that clients sent.
//!
//! The format of the lines is `parm_dispatch::recording`. Reading order: `recorder` (who is told), `recording` (notes to lines), `file` (lines to a file).

mod config;
mod file;
mod recorder;
mod recording;

pub use config::Config;
pub use file::Writing;
pub(crate) use recorder::{Done, Note, Recorder};
pub use recording::Recording;
