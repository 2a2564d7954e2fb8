//! ConnectionLimits of HTTP/1.1 and HTTP/2 on a connection, each set here rather than inherited from a library's defaults.

use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;

use super::limits::ConnectionLimits;
use crate::tls::Spoken;

/// Bytes of a head of HTTP/1.1, and of what is read or written at once.
const BUFFER: usize = 400 << 10;

/// Flow-control windows of HTTP/2: a request of a megabyte arrives without waiting for the window.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Largest frame of HTTP/2: the least that the protocol allows, so that streams take turns.
const FRAME: u32 = 16 << 10;

/// Bytes of a head of HTTP/2 after decompression. A head that continues in other frames is bounded by it too.
const HEAD_LIST: u32 = 16 << 10;

/// Bytes of an answer that a stream keeps for a client that makes no room for them.
const SEND_BUFFER: usize = 400 << 10;

/// Streams that a client has opened and reset before they were accepted (CVE-2023-44487): more end the connection.
const RESETS: usize = 20;

/// Streams that this end has reset because of what the client did (CVE-2025-8671): more end the connection. Streams that are
/// refused count too, and a client may open more than it may have before it knows how many it may have.
const FAULTS: usize = 1024;

/// Silence on an HTTP/2 connection after which a ping is sent, and the time for the answer to it.
const PING: Duration = Duration::from_secs(20);

/// What serves a connection. Heads have no time limit here: `connection` has one for all protocols. The number of headers has
/// hyper's limit of 100; to set it would make each request allocate.
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
