//! Who may do what: keys with a role and limits, and the one table of what every route wants.
//!
//! Problem: whoever reaches a port may use everything behind it, unless each route asks who calls. A route that was
//! forgotten is open, and nobody notices: servers whose keys guard some paths and not others are the rule.
//!
//! Choice: [`ROUTES`] names every route of every listener with the access that it wants, and what is not in it is not
//! served. A key is 256 random bits with a name and a role. The server has a file of their SHA-256 digests, so that whoever
//! reads the file, a dump or a log has no key. A request costs one hash and one look-up; digests have one length and are
//! compared in a time that tells nothing about them. The file is read again while serving: a key that is taken out ends
//! what it began, and one whose digest is added beside the old one can be changed without a gap.
//!
//! Rejected: hashes that are slow on purpose (they protect words that people choose; nobody guesses 256 bits), what a
//! connection's last request sent kept beside it (a proxy sends many clients' requests over one connection, and the hash
//! costs less than the comparison would save), signed tokens (an issuer and clocks to trust).
//!
//! Cold start: without a key file everyone may ask for predictions, and models are loaded and unloaded by who is on this
//! machine. A key file that cannot be read at the start is an error; later on the keys before it stay.

mod access;
mod caller;
mod credential;
mod digest;
mod file;
mod follow;
mod limit;
mod ring;
mod route;
mod table;
#[cfg(test)]
mod tests;

pub use access::{Access, Role};
pub use caller::{Caller, Visit};
pub use digest::{Digest, Secret};
pub use file::{Digests, Entry, KeyFile};
pub use http::Method;
pub use ring::Keys;
pub use route::{Route, Surface, find, methods};
pub use table::{GRPC, METRICS, REST};
