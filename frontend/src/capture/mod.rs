//! Captures a share of the queries with the deployed model's answers, to make stand-ins from.
//!
//! A sampled request is handed over when it is answered. This costs one atomic read, and for sampled requests a push to
//! a bounded queue. A separate thread writes. If it is too slow, requests are dropped and counted, never delayed. If it
//! cannot write at all (full disk, missing folder), the capture ends with one line in the log and serving goes on.
//! Answers by anything but the deployed model are omitted; only their inputs are kept.
//!
//! The format is that of `parm_captures`. Reading order: `config`, `sampler` (selects requests), `writer` (the thread).

mod config;
mod sampler;
mod writer;

pub use config::Config;
pub(crate) use sampler::Sampler;
