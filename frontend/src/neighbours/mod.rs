//! Other frontends over the same servers: each tells what it holds where, and hears what the others hold.
//!
//! Only servers that give no tokens need it; what is made of it, and why, is told in the dispatcher's `neighbours`.
//!
//! A frontend follows each of its neighbours by one open answer of their admin APIs (`GET /admin/v1/held`): a line says who
//! tells, and for each server of which there is news how many jobs it holds there. The first line names all. A line follows a
//! change as soon as the one before is a millisecond old, and where nothing changes there is an empty one now and then. A
//! neighbour that is silent for half a second, or whose answer ends, holds nothing as far as anybody knows: what is forgotten
//! too early costs a wait behind somebody else's job, what is believed too long keeps a server idle.
//!
//! Reading order: `telling` (what is told), `following` (how it is heard), `neighbourhood` (what is made of it).
//!
//! Rejected: datagrams, which would want keys and encryption of their own; telling by request, as then anybody with a key for
//! inference could make servers seem busy; more than numbers, as whose queries go first cannot be agreed upon without a round
//! trip (tokens do that, where the server is ours or has an agent beside it).

mod config;
mod following;
mod neighbourhood;
mod telling;
mod tidings;

pub use config::Config;
pub(crate) use following::follow;
pub(crate) use neighbourhood::Neighbourhood;
pub(crate) use telling::{Exchange, Telling};
