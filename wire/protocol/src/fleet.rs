//! What clients and servers do about tokens, where several frontends share instances: see the crate `tokens`.

use parm_tokens::{Frontend, Message, Order, Token};

/// The parameter of a request that names the share of the instances' time that it is charged to.
pub const SHARE: &str = "parm_share";

/// What stands before a model's name where its own share is meant, as no share that is set up can be called.
pub const OWN_SHARE: &str = "model:";

/// A server's half: it gives tokens and notes reservations. Its models go by name.
pub trait Giver: Send + Sync {
    /// A frontend takes part, on a connection of its own; it is told by post.
    fn join(&self, mailbox: Box<dyn Mailbox>) -> Frontend;

    /// The connection is gone.
    fn leave(&self, frontend: Frontend);

    /// A frontend says something.
    fn told(&self, frontend: Frontend, order: Order<Wish>);
}

/// What a frontend has a job of.
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

/// The way to a frontend.
pub trait Mailbox: Send + Sync {
    /// Sends a message; what need not be there at once may go with the next answer. It may get lost.
    fn post(&self, message: Message, at_once: bool);
}

/// A client's half: told what comes on the connections to one server.
pub trait Watcher: Send + Sync {
    /// There is news on a connection; later connections have higher numbers.
    fn heard(&self, connection: u64, news: News);
}

/// What a connection tells a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It is there, and the server gives tokens on it.
    Offered,
    /// The server says something.
    Told(Message),
    /// It takes no more requests, and all tokens are void.
    Ended,
}

/// Who sends a request, where it takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The frontend.
    pub frontend: Frontend,
    /// The token that came with the request.
    pub token: Option<Token>,
}
