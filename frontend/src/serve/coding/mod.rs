//! Coding on tensors: encodes groups and decodes missing predictions.
//!
//! The groups are in `coded`; their bytes are here. Reading order: a [`Library`] reads bundles
//! from a repository, and [`examine`] tests whether a model without one is linear. A [`plan`](plan()) derives from them
//! and the settings the [`Codes`] of a pool and the dispatcher's settings. An [`Encoding`] makes parity queries of a
//! group, and a [`Decoding`] makes a prediction of the outputs. Small work runs
//! inline, because handing it to another thread costs more than a few microseconds of arithmetic; large work runs on
//! the runtime's blocking threads.

mod codes;
mod decoding;
mod encoding;
mod guards;
mod judging;
mod library;
mod linearity;
mod plan;
mod work;

pub use codes::LoadNets;
pub(crate) use codes::{Coder, Codes};
pub(super) use decoding::Decoded;
pub(crate) use decoding::{Decoding, is_decodable};
pub(super) use encoding::{Encoding, ParityQuery};
pub(crate) use guards::Guards;
pub(crate) use judging::StandIn;
pub(crate) use library::{Bundle, Library};
pub(crate) use linearity::{Linearity, examine};
pub(crate) use plan::{Plan, StandInStanding, Standing, plan};
pub(super) use work::{Work, places};
