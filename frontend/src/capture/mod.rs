//! A share of the queries is kept in a folder, with what the deployed model answered: rows to make stand-ins from.
//!
//! A request that is drawn is handed over when it is answered: a look at an atomic, and for those drawn a push to a bounded
//! queue. A thread of its own writes. Where it is too slow, requests are dropped, never delayed, and counted. Where it
//! cannot write at all (a full disk, a folder that went away), the capture ends with one line in the log; queries are
//! answered as before. Answers that others than the deployed model gave are left out: only their inputs are kept.
//!
//! The format is that of `parm_captures`. Reading order: `config`, `sampler` (who is drawn), `writer` (the thread).

mod config;
mod sampler;
mod writer;

pub use config::Config;
pub(crate) use sampler::Sampler;
