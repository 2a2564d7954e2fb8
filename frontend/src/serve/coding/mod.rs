//! Coding on tensors: encodes groups and decodes missing predictions.
//!
//! The dispatcher knows groups and slots only by id; their bytes are here. Reading order: a [`Library`] reads bundles
//! from a repository, and [`examine`] tests whether a model without one is linear. A [`plan`](plan()) derives from them
//! and the settings the [`Codes`] of a pool and the dispatcher's settings. An [`Encoding`] makes parity queries of a
//! group, a [`Decoding`] makes a prediction of the outputs, and [`Comparing`] finds wrong predictions. Small work runs
//! inline, because handing it to another thread costs more than a few microseconds of arithmetic; large work runs on
//! the runtime's blocking threads.

mod alike;
mod codable;
mod coder;
mod codes;
mod comparing;
mod decoding;
mod default;
mod encoding;
mod group;
mod library;
mod linearity;
mod nets;
mod plan;
mod stand_in;
mod stock;
mod work;

pub(crate) use codable::Guards;
pub(crate) use codes::Codes;
pub(super) use comparing::{Check, Comparing};
pub(super) use decoding::{Arrived, Decoded, Decoding};
pub(super) use encoding::Encoding;
pub(super) use group::{Group, ParityQuery};
pub(crate) use library::{Bundle, Library};
pub(crate) use linearity::{Linearity, examine};
pub use nets::LoadNets;
pub(crate) use plan::{Plan, StandInStanding, Standing, plan};
pub(super) use stand_in::{Checking, Judging, Twin};
pub(crate) use stand_in::{StandIn, cost};
pub(super) use stock::Stock;
pub(super) use work::{Desk, Work};
