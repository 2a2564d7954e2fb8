//! Serving: the dispatcher driven by tokio.
//!
//! The life of a request, in reading order: `service` receives it, `terms` reads its parameters, and `driver` submits
//! its rows to the dispatcher. `state` (and `groups`) update the `ledger`, `coding` encodes and decodes, `job` runs the
//! rows at an instance, and `outputs` builds the response. `catalog` and `pool` hold the models, and `core` owns all
//! parts.

mod agreement;
mod alarm;
mod catalog;
mod clock;
mod coding;
mod core;
mod crash;
mod driver;
mod effect;
mod ejections;
mod endings;
mod forward;
mod groups;
mod held;
mod index;
mod inputs;
mod instance;
mod job;
mod ledger;
mod lengths;
mod members;
mod outcome;
mod outputs;
mod pool;
mod probe;
pub(crate) mod reading;
mod redirect;
mod refusal;
mod roster;
mod service;
mod shape;
mod state;
mod stories;
mod suspects;
mod terms;
mod tokens;
mod trace;

pub use clock::Timers;
pub use coding::LoadNets;
pub(crate) use core::{Core, Departure, PoolSettingsByModel, Reach};
pub use core::{Dispatch, Reloaded};
pub use held::{Held, Kept};
pub(crate) use instance::{Instance, Quantiles};
pub use outcome::Outcome;
pub(crate) use pool::{Description, Pool};
pub use service::Frontend;
