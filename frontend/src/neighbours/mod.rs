//! Exchange of load between frontends over the same servers.
//!
//! Each frontend reports how many jobs it holds at each server, and receives the reports of the others. Only servers
//! without tokens need this; the dispatcher's `neighbours` explains how the reports are used.
//!
//! A frontend follows each neighbour through one open response of its admin API (`GET /admin/v1/held`). A line has the
//! name of the reporting frontend and the number of jobs at each server where it changed; the first line lists all
//! servers. A line follows a change at once, at most one per millisecond, and an empty line is sent now and then. If a
//! neighbour is silent for half a second or its response ends, its report is dropped. Dropping it too early costs a
//! wait behind another frontend's job; keeping it too long leaves a server idle.
//!
//! Reading order: `exchange` (reports of this frontend), `follower` (connections to neighbours), `neighbourhood`
//! (evaluation).
//!
//! Rejected: datagrams, which would need keys and encryption of their own; reports by request, because any client with
//! a key for inference could make servers seem busy; richer data, because agreeing on the order of queries takes a
//! round trip (tokens do that for parm workers).

mod config;
mod exchange;
mod follower;
mod neighbourhood;
mod report;

pub use config::Config;
pub(crate) use exchange::{Exchange, ReportStream};
pub(crate) use follower::follow;
pub use follower::look;
pub(crate) use neighbourhood::Neighbourhood;
