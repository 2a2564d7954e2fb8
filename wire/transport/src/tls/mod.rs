//! TLS for listeners and outgoing connections, except Unix sockets.
//!
//! Problem: keys and predictions travel over shared networks, and a running fleet cannot be stopped to enable TLS.
//! Machine-issued certificates live for hours, so a process that reads them only once fails when they expire.
//!
//! Choice: one section of the configuration, one identity (certificate and key) for both directions, and a [`Mode`]
//! that is raised step by step on a running fleet. A port distinguishes TLS from plain text by the first byte, so no
//! step needs another port. The files are polled every second. A change swaps the whole configuration, authorities
//! included; an invalid change is logged and ignored. Names in certificates decide which callers are admitted, and an
//! empty list admits none.
//!
//! Rejected: session resumption (a ticket outlives its certificate, and connections are kept anyway); the system's
//! authorities as a default (every site's certificate would be a worker's); a certificate that is looked up in each
//! handshake (authorities would not change).
//!
//! Cold start: without the section TLS is off and costs nothing. Invalid files are an error at the start; later the
//! previous identity stays.
//!
//! Reading order: `config` has the settings, `files` reads, `identity` builds rustls configurations with `verify`, and
//! `handle` swaps them. `welcome` handles accepted connections, `outgoing` the others. `stream` carries bytes, and
//! `advice` explains errors.

mod advice;
mod config;
mod files;
mod handle;
mod identity;
mod outgoing;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod verify;
mod welcome;

pub(crate) use advice::advised;
pub use config::{Config, Mode};
pub use handle::Tls;
pub use outgoing::{Outgoing, Spoken};
pub(crate) use stream::{Session, Stream};
pub(crate) use welcome::Welcome;
