//! Frames: a multiplexed binary transport between frontends and workers, over TCP and Unix sockets.
//!
//! HTTP/1.1 carries one request at a time on a connection, and gRPC costs several times the processor time of frames. A
//! frame is a 16-byte header and a body. A body is a compact head and the tensors' bytes, aligned, so that they are
//! read in place. Requests and answers of one connection interleave, and a request can be cancelled.
//!
//! ```text
//! header  body length u32 | kind u8 | "prm" | request id u64        little-endian, body a multiple of 8
//! body    head length u32 | head | padding to 8 | tensor | padding to 8 | tensor | ...
//! kinds   request 1, response 2, failure 3, cancel 4, ping 5, pong 6, go-away 7,
//!         granted 8, recalled 9, shared 10, ask 11, return 12 if both sides use grants
//! ```
//!
//! Frames are negotiated with an HTTP/1.1 upgrade on the ordinary port (`PATH`, `PROTOCOL`), so they need no port,
//! credential or discovery of their own. All other endpoints stay HTTP.

mod codec;
mod config;
mod connection;
mod frame;
mod reader;
mod serving;
mod socket;
#[cfg(test)]
mod tests;
mod writer;

#[doc(hidden)]
pub use codec::survives;
pub use config::Config;
pub(crate) use config::{EXTENSION, Limits, Negotiated, PATH, PROTOCOL};
pub(crate) use connection::Connection;
pub(crate) use serving::serve;
pub use socket::Socket;
