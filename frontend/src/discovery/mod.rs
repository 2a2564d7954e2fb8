//! Discovery of instances, and their supervision.
//!
//! Sources (the configured list, DNS names, Services of Kubernetes, a file, the admin API, threads of this process)
//! only add and remove members of the [`Fleet`]. Each member has a supervisor that connects, describes its models,
//! joins it to the dispatcher, checks its health and removes it.

mod connect;
mod description;
mod dns;
mod file;
mod fleet;
pub mod kubernetes;
mod member;
mod membership;
mod resolver;
mod supervisor;

pub use connect::{Connect, Wire};
pub use dns::{Name, Records};
pub use file::Listed;
pub use fleet::Fleet;
pub(crate) use member::{Member, MemberReading, MemberState, Source, Wish};
