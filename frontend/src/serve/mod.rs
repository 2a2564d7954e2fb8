//! Serving: the dispatcher driven by tokio.
//!
//! The life of a request, in reading order: `service` receives it, `terms` reads its parameters, and `driver` submits
//! the rows of a `call` to the dispatcher. `state` carries out its actions, `attempt` runs rows at an instance, and `outputs` builds
//! the response. Clients of the dispatcher beside it are `coded` (with the arithmetic of `coding`) and `agreement`. `lines` has the
//! dispatcher's models of a pool, `roster` its instances, `catalog` and `pool` hold the models, and `core` owns all parts.

mod agreement;
mod attempt;
mod call;
mod catalog;
mod clock;
mod coded;
mod coding;
pub(crate) mod conditions;
mod core;
mod driver;
mod forward;
mod inputs;
mod instance;
mod lines;
mod outputs;
mod pool;
pub(crate) mod reading;
mod roster;
mod service;
mod state;
mod stories;
mod terms;
mod trace;

pub(crate) use attempt::Role;
pub use clock::Timers;
pub use coding::LoadNets;
pub(crate) use core::{Core, Departure, PoolSettingsByModel, Reach};
pub use core::{Dispatch, Reloaded};
pub use driver::Held;
pub(crate) use instance::{Instance, InstanceId, Quantiles};
pub use outputs::Outcome;
pub(crate) use pool::{Description, Pool, PoolId};
pub use service::Frontend;
