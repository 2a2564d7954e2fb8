//! Access control: keys with a role and limits, and the table of the access that every route requires.
//!
//! Problem: without a check in each route, every client that reaches a port may use everything behind it. A route
//! without a check goes unnoticed; servers that guard some paths and not others are common.
//!
//! Choice: [`REST`], [`GRPC`] and the tables of the servers' own pages list every route with the access that it requires. A
//! route without a row is not served, unless the service forwards it. A key is 256 random bits with a name and a role. The server
//! has a file of their SHA-256 digests, so neither the file nor a dump or log reveals a key. A request costs one hash and one
//! lookup. The file is polled while serving. A removed key opens nothing more, and ends its connection of frames with the next
//! request there. A key with two digests can be replaced without a gap.
//!
//! Rejected: slow hashes (they protect passwords; 256 random bits cannot be guessed); caching a connection's last key
//! (a proxy multiplexes many clients over one connection, and the hash costs less than the comparison would save);
//! signed tokens (they require an issuer and trusted clocks).
//!
//! Cold start: without a key file every client may request predictions, and models can be loaded and unloaded from this
//! machine only. An invalid key file is an error at the start; later the previous keys stay valid.

mod caller;
mod file;
mod key;
mod limit;
mod ring;

pub use caller::{Access, Caller, Role, Visit};
pub use file::{Digests, Entry, KeyFile};
pub use http::Method;
pub use key::{Digest, Token};
pub use ring::Keys;

pub use crate::routes::{GRPC, METRICS, REST, Route, Surface, find, methods};
