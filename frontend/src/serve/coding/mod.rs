//! Coding on tensors: encodes groups and decodes missing predictions.
//!
//! The groups are in `coded`; their bytes are here. Reading order: a [`Library`] reads bundles
//! from a repository, and [`examine`] tests whether a model without one is linear. A [`plan`](plan()) derives from them
//! and the settings the [`Codes`] of a pool and the dispatcher's settings. An [`Encoding`] makes parity queries of a
//! group, and a [`Decoding`] makes a prediction of the outputs. Small work runs
//! inline, because handing it to another thread costs more than a few microseconds of arithmetic; large work runs on
//! the runtime's blocking threads.

mod buffers;
mod coder;
mod codes;
mod decoding;
mod default_answer;
mod encoding;
mod equality;
mod guards;
mod judging;
mod library;
mod linearity;
mod nets;
mod plan;
mod work;

pub(super) use buffers::Stock;
pub(crate) use coder::Coder;
pub(crate) use codes::Codes;
pub(super) use decoding::Decoded;
pub(crate) use decoding::Decoding;
pub(crate) use decoding::is_decodable;
pub(super) use encoding::{Encoding, ParityQuery};
pub(crate) use guards::Guards;
pub(crate) use judging::{Costs, StandIn, costs};
pub(crate) use library::{Bundle, Library};
pub(crate) use linearity::{Linearity, examine};
pub use nets::LoadNets;
pub(crate) use plan::{Plan, StandInStanding, Standing, plan};
pub(super) use work::{Desk, Work};
