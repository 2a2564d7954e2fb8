//! Traits of clients and servers that share a server by asks and grants (see the crate `grants`).

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;

use parm_grants::{Order, Told};

/// The request parameter that names the share of the instances' time that the request is charged to.
pub const SHARE: &str = "parm_share";

/// The request parameter of a frontend that split a client's request or joined several: the rows must be independent. A
/// server whose model has changed since it was described, so that rows are not, rejects the request.
pub const ROWS: &str = "parm_rows";

/// Prefix of a model's own share; configured shares cannot have such names.
pub const OWN_SHARE: &str = "model:";

/// A frontend, identified by its connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frontend(pub u64);

/// A server's half: hears asks and grants room.
pub trait Giver: Send + Sync {
    /// Jobs that the server runs at a time, if it states them.
    fn slots(&self) -> Option<NonZeroU16> {
        None
    }

    /// Registers a frontend, which has a connection of its own; it is told through `mailbox`.
    fn join(&self, mailbox: Box<dyn Mailbox>) -> Frontend;

    /// The connection ended.
    fn leave(&self, frontend: Frontend);

    /// Processes a frontend's message.
    fn hears(&self, frontend: Frontend, order: Order);
}

/// Delivers messages to a frontend.
pub trait Mailbox: Send + Sync {
    /// Sends a message. Unless `at_once`, it may travel with the next answer.
    fn post(&self, told: Told, at_once: bool);
}

/// A client's half: hears what the connections to one server report.
pub trait Watcher: Send + Sync {
    /// A connection reports news; later connections have higher numbers.
    fn heard(&self, connection: u64, news: News);
}

/// News of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The server of the open connection runs this many jobs at a time, for all frontends together.
    Slots(NonZeroU16),
    /// The server says this.
    Told(Told),
    /// The connection takes no more requests, and all its grants are void. These are its last news.
    Ended,
}

/// The frontend that sent a request. If this is dropped, the request will not run and its grant goes back.
pub struct Caller {
    frontend: Frontend,
    giver: Option<Arc<dyn Giver>>,
}

impl Caller {
    /// A frontend of this giver.
    pub fn new(giver: Arc<dyn Giver>, frontend: Frontend) -> Self {
        Self { frontend, giver: Some(giver) }
    }

    /// The request waits for its run from now on.
    pub fn comes(mut self) -> Frontend {
        self.giver = None;
        self.frontend
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(giver) = &self.giver {
            giver.hears(self.frontend, Order::Return);
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.frontend.fmt(f)
    }
}
