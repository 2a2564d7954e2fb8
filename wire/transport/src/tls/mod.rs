//! TLS on whatever is listened on and dialled, Unix sockets excepted.
//!
//! Problem: keys and predictions travel over networks that others use too, and a fleet that runs cannot be stopped to change
//! what it speaks. Certificates live for hours where machines issue them, and a process that reads them once is down when
//! they end.
//!
//! Choice: one section of the configuration, one identity (certificate and key) for what is served and what is dialled, and
//! a [`Mode`] that is raised step by step on a running fleet. A port tells TLS from plain by the first byte, so no step needs
//! another port. The files are read again every second, and the whole configuration made of them is swapped, authorities
//! included; what is broken changes nothing and is told. Who may call is said by the names in its certificate, and nobody is
//! let in because nobody was named.
//!
//! Rejected: resumed sessions (a ticket outlives the certificate that it was given for, and connections are kept anyway);
//! the system's authorities as a default (every site's certificate would be a worker's); a certificate that is looked up in
//! each handshake (authorities would stay what they were).
//!
//! Cold start: without the section nothing is TLS and nothing costs anything. Files that cannot be used at the start are an
//! error; later on what was made of the ones before stays.
//!
//! Reading order: `config` says what is wished, `files` reads, `identity` makes rustls' configurations of what was read, with
//! `verify` and `names`; `follow` swaps them. `welcome` and `refusal` stand at the ports, `outgoing` and `memory` before the
//! dialler, `stream` and `session` carry bytes, and `words` tells people what went wrong.

mod advice;
mod config;
mod files;
mod follow;
mod handle;
mod identity;
mod memory;
mod metrics;
mod names;
mod outgoing;
mod provider;
mod refusal;
mod session;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod verify;
mod welcome;

pub use config::{Config, Mode};
pub use handle::{Standing, Tls};
pub use outgoing::Outgoing;
pub(crate) use session::Session;
pub use stream::Stream;
pub use welcome::Spoken;
pub(crate) use welcome::Welcome;
