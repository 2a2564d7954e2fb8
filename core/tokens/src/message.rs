//! Messages between workers and frontends.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A frontend, identified by its connection to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frontend(pub u64);

/// Permission to send an instance one job. A worker repeats a number only after 2^32 tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Token(pub u32);

/// A frontend's own number for its reservation; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note(pub u32);

/// Urgency of a job. Shares decide within a class, then the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A retry, a hedge, or the stand-in of a late query.
    Late,
    /// A query.
    Query,
    /// A redundant job.
    Spare,
}

/// A token and its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The token.
    pub token: Token,
    /// Time after which the unused token goes back; `None` without other frontends.
    pub lease: Option<Duration>,
    /// Another job or reservation waits for the instance: use the token at once or give it back.
    pub contended: bool,
    /// The instance is reserved by a share: use the token for a query, not for redundancy.
    pub reserved: bool,
    /// Number of frontends that share the instance.
    pub sharers: u16,
    /// Note of the reservation that the token meets.
    pub met: Note,
}

/// Message from a worker to a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The frontend may send a job.
    Granted(Grant),
    /// Another frontend needs the token: give it back unless it is used.
    Recalled(Token),
    /// No other frontend takes part, so no tokens are needed. The worker runs this many jobs at a time.
    Alone(u16),
    /// Other frontends take part: each job needs a token from now on.
    Shared,
}

/// Message from a frontend to a worker. Each states what holds from now on, so duplicates are harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order<K> {
    /// A job of this key (its model) waits for the next free instance, and has waited this long already.
    Reserve(K, Class, Note, Duration),
    /// No job of this key waits.
    Withdraw(K),
    /// A token is returned unused.
    GiveBack(Token),
}

impl Class {
    /// Encodes the class as a byte.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Decodes a byte; an unknown one is the least urgent.
    pub const fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Late,
            1 => Self::Query,
            _ => Self::Spare,
        }
    }
}
