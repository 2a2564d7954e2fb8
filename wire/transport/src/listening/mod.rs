//! Listeners and their connections: one type of limits and one serving loop for every address.
//!
//! A [`Station`] is a bound [`Listener`] with [`ConnectionLimits`] and a [`Room`] of places. It accepts connections
//! until it is stopped, performs the TLS handshake, and lets a `tower` service answer the requests of each connection.
//!
//! Problem: a client without a key can open connections and send nothing, one byte per second, or half a request. Each
//! costs a file descriptor and memory. A listener with its own set of limits tends to lack one.
//!
//! Choice: every listener has all fields of [`ConnectionLimits`], and no other module accepts connections: `tests/listeners.rs`
//! attacks every port of a process. A connection has one timeout for its first byte, one for the TLS handshake, and one for the
//! head of its first request; later heads have the idle timeout. A [`Room`] limits the number of connections. When it is full,
//! it evicts one that has been without a request for long, so silent clients cannot keep others out.
//!
//! Rejected: a shorter timeout instead of eviction (as many silent connections as there are places block a listener for
//! that time, again and again, while clients on slow links are cut off); a limit per client address (clients behind a
//! gateway share an address, and an attacker has many).
//!
//! Reading order: `listener`, `room` chooses whom to evict, `station` accepts and serves, `unfinished` reads bodies
//! to their end.

mod listener;
mod room;
mod station;
#[cfg(test)]
mod tests;
mod unfinished;

use std::num::NonZeroU32;
use std::time::Duration;

pub use listener::Listener;
pub(crate) use room::{ClientEnd, Connection};
pub use room::{Room, Tracked};
#[cfg(test)]
pub(crate) use station::serve_one;
pub(crate) use station::{Ages, Drain, after};
pub use station::{Answer, Answers, Station};
pub use unfinished::Lent;

/// Time for the first byte of a connection. A client that has connected sends immediately, unless its machine is overloaded.
/// A first segment that is lost twice arrives after 3 s (retransmission after 1 s and 2 s, RFC 6298), so a client on a bad
/// link is still in time.
pub(crate) const FIRST_BYTE: Duration = Duration::from_secs(10);

/// Connections of an address for operators: scrapers, browsers and command lines, not clients.
pub const OPERATOR_CONNECTIONS: usize = 64;

/// HTTP/2 streams on one connection of an operator: a page loads thirty files at once.
const OPERATOR_STREAMS: NonZeroU32 = NonZeroU32::new(100).unwrap();

/// Limits of each connection of a listener.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Time for the first byte.
    pub first_byte: Duration,
    /// Time for the head of the first request, after the TLS handshake.
    pub head: Duration,
    /// Time without a request in progress.
    pub idle: Duration,
    /// Time since a request arrived, and the most bytes, for reading the rest of its body although its response exists already.
    /// The service itself limits the bodies that it reads.
    pub body: Duration,
    /// See `body`.
    pub body_bytes: usize,
    /// Time for a client to read a response, or a part of a stream.
    pub answer: Duration,
    /// Age at which a connection ends, a tenth more or less; zero means no limit.
    pub age: Duration,
    /// Time that connections have to finish once the listener is stopped.
    pub drain: Duration,
    /// HTTP/2 streams in progress on one connection.
    pub streams: NonZeroU32,
    /// Time that a connection which has sent a request must be idle before it can be evicted for a new one; at least a second,
    /// as for a connection that never sent a request.
    pub spare: Duration,
    /// Bytes that the kernel buffers for a client that does not read; `None` leaves the size to the kernel.
    pub send_buffer: Option<usize>,
}

impl ConnectionLimits {
    /// Limits of addresses for operators: metrics and the admin API. They are constants, because no operator needs
    /// another value: requests are small, and a client that is cut off reconnects. Only the age is a setting, for all
    /// addresses.
    pub fn operators(age: Duration) -> Self {
        Self {
            first_byte: FIRST_BYTE,
            head: Duration::from_secs(10),
            // More than the usual minute between two scrapes would hold places of scrapers that are gone.
            idle: Duration::from_secs(90),
            body: Duration::from_secs(10),
            // Twice the largest body of an operator.
            body_bytes: 2 << 20,
            answer: Duration::from_secs(30),
            drain: Duration::from_secs(5),
            streams: OPERATOR_STREAMS,
            // Places are few, and every client of this address retries.
            spare: Duration::ZERO,
            // A stream writes a kilobyte per second: with the kernel's default buffers of megabytes a client that does
            // not read would be noticed only after half an hour.
            send_buffer: Some(32 << 10),
            age,
        }
    }
}
