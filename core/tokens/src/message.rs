//! What workers and frontends tell each other.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A frontend, as a worker knows it: one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frontend(pub u64);

/// The right to send an instance one job. A worker never gives the same number twice in a row of 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Token(pub u32);

/// A frontend's own number for what it reserved an instance for; 0 says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note(pub u32);

/// How urgent a job is, whoever's it is. Within a class shares decide, and then the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A retry, a hedge or the stand-in of a query that is late.
    Late,
    /// A query.
    Query,
    /// What may help and need not be done.
    Spare,
}

/// A token, and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The token.
    pub token: Token,
    /// Unused it goes back after this time; `None` where no other frontend is there to want it.
    pub lease: Option<Duration>,
    /// Others wait for the instance: use it at once or give it back.
    pub contended: bool,
    /// It is of an instance that a share has reserved: for a query of such a share, or of another, and for nothing else.
    pub reserved: bool,
    /// Frontends that share the instance.
    pub sharers: u16,
    /// The reservation that it meets, in the frontend's own words.
    pub met: Note,
}

/// From a worker to a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// It may send a job.
    Granted(Grant),
    /// Somebody else needs the token: give it back, unless it is used.
    Recalled(Token),
    /// No other frontend takes part: until there is one it needs no tokens. The worker runs so many jobs at a time.
    Alone(u16),
    /// Others take part: from now on it needs a token for a job.
    Shared,
}

/// From a frontend to a worker. Each says what is so from now on, so that one that comes twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order<K> {
    /// It has a job of this model (or whatever shares go by) for the next instance that is free.
    Reserve(K, Class, Note),
    /// It has none any more.
    Withdraw(K),
    /// It does not use a token.
    GiveBack(Token),
}

impl Class {
    /// As a byte.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Of a byte; an unknown one is the least urgent.
    pub const fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Late,
            1 => Self::Query,
            _ => Self::Spare,
        }
    }
}
