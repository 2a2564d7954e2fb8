//! Weighted fair queueing of instance time between shares.
//!
//! [`Book`] holds the accounts and orders shares; [`Table`] finds the share that a request is charged to; [`Settings`]
//! are the shares that an operator configures.
//!
//! Problem: if instances serve queries in order of arrival, the busiest client takes nearly all of their time. With
//! four instances, 64 clients that keep a model of 100 ms busy, and an occasional query to a model of 5 ms, each of the
//! short queries waits behind 64 others for 1.6 s.
//!
//! Choice: start-time fair queueing in measured time. Each share has a place on a virtual clock. A job advances its
//! share by the job's duration divided by the share's weight. The share that is farthest behind is served next, and the
//! clock follows the share that is farthest behind among those with waiting jobs. An idle share saves nothing up: when
//! it returns, it starts at the clock. The duration of a job is unknown when it starts, so the usual duration of its
//! model's jobs is charged first and corrected when the job ends. The correction is bounded, so a hung instance does
//! not use up its share's time.
//!
//! Some shares have *reserved* instances. No instance is kept idle for them. While fewer queries of a share run than
//! are reserved, its next query precedes all other work, wherever the share is on the clock. It therefore gets the next
//! instance that becomes free, within one service time. Until then others may use the reserved instances: running jobs
//! finish, and none starts before the reserved one. Redundant jobs (hedges, parities, stand-ins, replicas) use up no
//! reservation and take no instance that is needed for one.
//!
//! Rejected: round robin, which gives a model of 100 ms twenty times the time of a model of 5 ms; deficit round robin,
//! which needs the duration of a job before it starts; reserved instances that are kept idle, which waste time; a clock
//! that follows the share served last, because each job served out of turn (a late one) would erase the lag of all
//! other shares.
//!
//! Cold start: the first jobs of a model are charged nothing until one of them ends, so they run in order of arrival.

mod book;
mod error;
mod settings;
mod share;
mod table;
mod usual;

pub use book::{Account, Book, Charge, Terms, Turn, Work};
pub use error::{Error, Refusal};
pub use settings::{Settings, ShareSettings};
pub use share::Due;
pub use table::{Asked, Table};
