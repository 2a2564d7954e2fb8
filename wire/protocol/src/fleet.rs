//! Traits of clients and servers that exchange tokens (see the crate `tokens`).

use std::num::NonZeroU16;

use parm_tokens::{Frontend, Message, Order, Token};

/// The request parameter that names the share of the instances' time that the request is charged to.
pub const SHARE: &str = "parm_share";

/// The request parameter of a frontend that split a client's request or joined several: the rows must be independent. A
/// server whose model has changed since it was described, so that rows are not, rejects the request.
pub const ROWS: &str = "parm_rows";

/// Prefix of a model's own share; configured shares cannot have such names.
pub const OWN_SHARE: &str = "model:";

/// A server's half: gives tokens and records reservations. It identifies models by name.
pub trait Giver: Send + Sync {
    /// Jobs that the server runs at a time, if it states them.
    fn slots(&self) -> Option<NonZeroU16> {
        None
    }

    /// Registers a frontend, which has a connection of its own; it receives messages through `mailbox`.
    fn join(&self, mailbox: Box<dyn Mailbox>) -> Frontend;

    /// The connection ended.
    fn leave(&self, frontend: Frontend);

    /// Processes a frontend's message.
    fn told(&self, frontend: Frontend, order: Order<Wish>);
}

/// The kind of job that a frontend has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wish {
    /// The model that its query is for.
    pub model: String,
    /// The share of the instances' time that the job is charged to, if not the model's own.
    pub share: Option<String>,
}

impl Wish {
    /// A job of a model, charged to the model's own share.
    pub fn of(model: impl Into<String>) -> Self {
        Self { model: model.into(), share: None }
    }
}

/// Delivers messages to a frontend.
pub trait Mailbox: Send + Sync {
    /// Sends a message. Unless `at_once`, it may travel with the next answer. It may get lost.
    fn post(&self, message: Message, at_once: bool);
}

/// A client's half: receives messages of the connections to one server.
pub trait Watcher: Send + Sync {
    /// A connection reports news; later connections have higher numbers.
    fn heard(&self, connection: u64, news: News);
}

/// News of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The connection is open, and the server gives tokens on it.
    Offered,
    /// The server of the open connection runs this many jobs at a time, for all frontends together.
    Slots(NonZeroU16),
    /// A message of the server.
    Told(Message),
    /// The connection takes no more requests, and all its tokens are void.
    Ended,
}

/// The frontend that sends a request, if it uses tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The frontend.
    pub frontend: Frontend,
    /// The token that came with the request.
    pub token: Option<Token>,
}
