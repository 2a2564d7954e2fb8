//! Where the dispatcher's coding meets tensors: groups are encoded here, lost predictions decoded.
//!
//! The dispatcher knows groups and slots by name; what the bytes are lives here. In reading order: a [`Library`] reads
//! bundles from a repository, and [`examine`] finds out whether a model without one is linear; a [`plan`](plan()) makes of one of them, and of the settings, the [`Codes`] of a pool and the
//! settings that its dispatch is to have; an [`Encoding`] makes parity queries of a group, a [`Decoding`] a prediction of
//! what came back, and [`Comparing`] tells whose predictions are wrong. Small ones run where they came up, for a hand-off costs more than a few microseconds of adding up;
//! large ones on the runtime's blocking threads.

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
