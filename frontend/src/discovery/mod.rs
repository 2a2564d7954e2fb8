//! Where instances come from, and who watches over them.
//!
//! Sources (the configured list, names that DNS knows, Services of Kubernetes, a watched file, the admin API, threads of this
//! process) only name members of the [`Fleet`]; every member has a supervisor that connects, asks what it serves, joins it to
//! the dispatcher, looks after its health and takes it out again.

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
