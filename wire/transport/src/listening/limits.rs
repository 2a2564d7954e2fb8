//! ConnectionLimits of a listener's connections.

use std::num::NonZeroU32;
use std::time::Duration;

/// Time for the first byte of a connection. A client that has connected sends at once; a first segment that is lost twice
/// arrives 3 s late (retransmission after 1 s and 2 s, RFC 6298), so that a client on a bad link is still in time.
const FIRST_BYTE: Duration = Duration::from_secs(5);

/// Connections of an address for operators: scrapers, browsers and command lines, not clients.
pub const OPERATOR_CONNECTIONS: usize = 64;

/// HTTP/2 streams on one connection of an operator: a page loads thirty files at once.
const OPERATOR_STREAMS: NonZeroU32 = NonZeroU32::new(100).unwrap();

/// What bounds each connection of a listener.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Time for the first byte.
    pub first_byte: Duration,
    /// Time for the head of the first request, after TLS is agreed upon.
    pub head: Duration,
    /// Time without a request in progress.
    pub idle: Duration,
    /// Time for a client to take an answer, or a part of a stream.
    pub answer: Duration,
    /// Age at which a connection ends, a tenth more or less; zero bounds nothing.
    pub age: Duration,
    /// Time that connections have to finish once the listener is stopped.
    pub drain: Duration,
    /// HTTP/2 streams in progress on one connection.
    pub streams: NonZeroU32,
    /// Time that a connection which has sent a request may be idle before it makes room for a new one. A connection that
    /// never sent a request makes room at any time.
    pub spare: Duration,
    /// Bytes that the kernel keeps for a client that does not read; `None` leaves it to the kernel.
    pub send_buffer: Option<usize>,
}

impl ConnectionLimits {
    /// ConnectionLimits of clients' addresses, as far as no setting says otherwise.
    pub(crate) fn clients() -> Self {
        Self {
            first_byte: FIRST_BYTE,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            answer: Duration::from_secs(60),
            age: Duration::ZERO,
            drain: Duration::from_secs(20),
            streams: const { NonZeroU32::new(1024).unwrap() },
            // Connections of a pool are used again within seconds, and a request may be on its way on a younger one.
            spare: Duration::from_secs(10),
            send_buffer: None,
        }
    }

    /// ConnectionLimits of addresses for operators: metrics and the admin API. They are not settings, because no operator needs another
    /// value: requests are small, and whoever is cut off connects anew. Only the age of connections is one, for all addresses.
    pub fn operators(age: Duration) -> Self {
        Self {
            head: Duration::from_secs(10),
            // Longer than the usual minute between two scrapes would keep places of those that are gone.
            idle: Duration::from_secs(90),
            answer: Duration::from_secs(30),
            drain: Duration::from_secs(5),
            streams: OPERATOR_STREAMS,
            // Places are few, and every client of this address repeats what was cut off.
            spare: Duration::ZERO,
            // A stream writes a kilobyte a second: with the kernel's own megabytes a client that does not read would show
            // after half an hour.
            send_buffer: Some(32 << 10),
            age,
            ..Self::clients()
        }
    }
}
