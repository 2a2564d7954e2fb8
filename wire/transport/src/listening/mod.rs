//! Listeners and their connections: one type of limits and one serving loop for every address.
//!
//! A [`Station`] is a bound [`Listener`] with [`ConnectionLimits`] and a [`Room`] of places. It accepts connections
//! until it is stopped, performs the TLS handshake, and lets a `tower` service answer the requests of each connection.
//!
//! Problem: a client without a key can open connections and send nothing, one byte per second, or half a request. Each
//! costs a file descriptor and memory. A listener with its own set of limits tends to lack one.
//!
//! Choice: every limit is a field of [`ConnectionLimits`], every listener has all of them, and no other file accepts
//! connections (`tests/listeners.rs`). A connection has one timeout for its first byte, one for the TLS handshake, and
//! one for the head of its first request. A [`Room`] limits the number of connections. When it is full, it evicts the
//! connection that has been without a request for longest, so silent clients cannot keep others out.
//!
//! Rejected: a shorter timeout instead of eviction (as many silent connections as there are places block a listener for
//! that time, again and again, while clients on slow links are cut off); a limit per client address (clients behind a
//! gateway share an address, and an attacker has many).
//!
//! Reading order: `limits`, `listener`, `room` chooses whom to evict, `station` accepts and serves, `unfinished` reads bodies
//! to their end.

mod limits;
mod listener;
mod room;
mod station;
#[cfg(test)]
mod tests;
mod unfinished;

pub use limits::{ConnectionLimits, OPERATOR_CONNECTIONS};
pub use listener::Listener;
pub(crate) use room::{Activity, ClientEnd};
pub use room::{Place, Room, Tracked};
#[cfg(test)]
pub(crate) use station::serve_one;
pub(crate) use station::{Ages, Connection, Drain, Watch};
pub use station::{Answer, Answers, Station};
pub use unfinished::Lent;
