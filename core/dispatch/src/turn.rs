//! The turn: the state of one event, which is gone after it.
//!
//! Rules read it, moves add actions to it.

use std::time::Duration;

use crate::api::{Actions, Payer, Time};
use crate::state::keys::PoolKey;

/// The state of one event.
pub(crate) struct Turn {
    pub(crate) now: Time,
    /// The delay of the wake that began this event.
    pub(crate) behind: Duration,
    /// The current token belongs to an instance that a share has reserved.
    pub(crate) for_reserved: bool,
    /// The pool and payer whose reservation the current token meets.
    pub(crate) met: Option<(PoolKey, Payer)>,
    /// The actions so far.
    pub(crate) out: Actions,
}

impl Turn {
    /// Begins an event. Its actions are added to `out`.
    pub(crate) fn new(now: Time, out: Actions) -> Self {
        Self { now, behind: Duration::ZERO, for_reserved: false, met: None, out }
    }
}
