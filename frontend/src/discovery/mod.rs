//! Discovery of instances, and their supervision.
//!
//! Sources (the configured list, DNS names, Services of Kubernetes, a file, the admin API, threads of this process)
//! only add and remove members of the [`Fleet`]. Each member has a supervisor that connects, describes its models,
//! joins it to the dispatcher, checks its health and removes it.

mod atlas;
mod connect;
mod describe;
mod dns;
mod file;
mod fleet;
pub mod kubernetes;
mod listed;
mod member;
mod missed;
mod name;
mod reminder;
mod resolver;
mod supervisor;
mod wire;

pub use connect::Connect;
pub(crate) use connect::authority;
pub use fleet::Fleet;
pub use listed::Listed;
pub(crate) use member::{Member, MemberState, Source, View, Wish};
pub use name::{Name, Records};
pub use wire::Wire;
