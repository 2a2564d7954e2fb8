//! Coding on tensors: encodes groups and decodes missing predictions.
//!
//! The dispatcher knows groups and slots only by id; their bytes are here. Reading order: a [`Library`] reads bundles
//! from a repository, and [`examine`] tests whether a model without one is linear. A [`plan`](plan()) derives from them
//! and the settings the [`Codes`] of a pool and the dispatcher's settings. An [`Encoding`] makes parity queries of a
//! group, a [`Decoding`] makes a prediction of the outputs, and [`Comparing`] finds wrong predictions. Small work runs
//! inline, because handing it to another thread costs more than a few microseconds of arithmetic; large work runs on
//! the runtime's blocking threads.

mod buffers;
mod coder;
mod codes;
mod comparing;
mod decoding;
mod default_answer;
mod encoding;
mod equality;
mod group;
mod guards;
mod judging;
mod library;
mod linearity;
mod nets;
mod plan;
mod work;

pub(super) use buffers::Stock;
pub(crate) use codes::Codes;
pub(super) use comparing::{Check, Comparing};
pub(crate) use decoding::is_decodable;
pub(super) use decoding::{Arrived, Decoded, Decoding};
pub(super) use encoding::Encoding;
pub(super) use group::{Group, ParityQuery};
pub(crate) use guards::Guards;
pub(super) use judging::{Checking, Judging, Twin};
pub(crate) use judging::{Costs, StandIn, costs};
pub(crate) use library::{Bundle, Library};
pub(crate) use linearity::{Linearity, examine};
pub use nets::LoadNets;
pub(crate) use plan::{Plan, StandInStanding, Standing, plan};
pub(super) use work::{Desk, Work};
