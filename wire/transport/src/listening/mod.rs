//! Listeners and the connections that they accept: one type of limits, and one serving loop for every address of the product.
//!
//! A [`Station`] is a bound [`Listener`] with [`ConnectionLimits`] and a [`Room`] of places. It accepts connections until it is stopped,
//! agrees upon TLS, and lets a [`Handler`] answer the requests of each connection.
//!
//! Problem: a client without a key can open connections and send nothing, one byte a second, or half a request. Each costs a
//! file descriptor and memory. A listener that has limits of its own forgets one of them.
//!
//! Choice: every limit is a field of [`ConnectionLimits`], every listener has all of them, and no other file accepts a connection
//! (`tests/listeners.rs`). A connection has one time limit for its first byte, one for the TLS handshake, and one for the head
//! of its first request. The number of connections is bounded by a [`Room`]; when it is full, the connection that has been
//! without a request for longest makes room, so that silent clients cannot keep others out.
//!
//! Rejected: a shorter time limit in place of the [`Room`]'s choice (as many silent connections as there are places hold a
//! listener for that time, again and again, while clients on slow links are cut off); a limit for each client address (clients
//! behind one gateway share an address, and an attacker has many).
//!
//! Reading order: `limits`, `listener`, `room`, `station` accepts, `connection` serves, `protocols` bounds HTTP,
//! `activity` tells an idle connection from a busy one, `routed` serves a router, `drain` ends it all.

mod activity;
mod age;
mod connection;
mod drain;
mod limits;
mod listener;
mod protocols;
mod room;
mod routed;
mod station;
#[cfg(test)]
mod tests;

pub(crate) use activity::Running;
pub use activity::{Activity, Told};
pub(crate) use age::Ages;
pub(crate) use drain::Drain;
pub use limits::{ConnectionLimits, OPERATOR_CONNECTIONS};
pub use listener::Listener;
pub use room::{Place, Room};
pub use routed::Routed;
#[cfg(test)]
pub(crate) use station::serve_one;
pub use station::{Handler, Station};
