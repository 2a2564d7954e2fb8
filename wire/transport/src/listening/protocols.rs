//! Limits of HTTP/1.1 and HTTP/2 on a connection, all set here instead of left to library defaults.

use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;

use super::limits::ConnectionLimits;
use crate::tls::Spoken;

/// Bytes of an HTTP/1.1 head, and of one read or write.
const BUFFER: usize = 400 << 10;

/// Flow-control windows of HTTP/2: a request of a megabyte arrives without waiting for the window.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Largest frame of HTTP/2: the minimum of the protocol, so that streams alternate.
const FRAME: u32 = 16 << 10;

/// Bytes of a head of HTTP/2 after decompression. A head that continues in other frames is bounded by it too.
const HEAD_LIST: u32 = 16 << 10;

/// Bytes of a response that a stream buffers for a client that does not read.
const SEND_BUFFER: usize = 400 << 10;

/// Streams that a client opened and reset before they were accepted (CVE-2023-44487): more end the connection.
const RESETS: usize = 20;

/// Streams that this end reset because of a client's mistake (CVE-2025-8671): more end the connection. Rejected streams
/// count too, and a client may exceed its limit before it learns it.
const FAULTS: usize = 1024;

/// Silence on an HTTP/2 connection after which a ping is sent, and the time for the answer to it.
const PING: Duration = Duration::from_secs(20);

/// Serves a connection. Heads have no timeout here: `connection` has one for all protocols. The number of headers has
/// hyper's limit of 100; setting it would make each request allocate.
pub(super) fn builder(limits: &ConnectionLimits, spoken: Spoken) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().header_read_timeout(None).half_close(false).max_buf_size(BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams.get())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_header_list_size(HEAD_LIST)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESETS)
        .max_local_error_reset_streams(FAULTS)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    match spoken {
        Spoken::Http1 => builder.http1_only(),
        Spoken::Http2 => builder,
    }
}
