//! Tokens of an instance that this frontend shares with others.

use std::num::NonZeroU16;

use smallvec::SmallVec;

use crate::api::{Role, Time, Token};
use crate::state::reservations::Asked;

/// The tokens and reservations of one instance.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    /// Oldest first.
    pub(crate) held: SmallVec<[Leased; 1]>,
    /// Reservations of this frontend.
    pub(crate) asked: SmallVec<[Asked; 1]>,
    /// Frontends that share the instance, including this one, as last reported.
    pub(crate) sharers: u16,
    /// The jobs that it runs at a time while no other frontend shares it: no token is needed.
    pub(crate) alone: Option<NonZeroU16>,
    /// The jobs that it runs at a time for all frontends together, as last reported; 0 if it never was.
    pub(crate) told: u16,
    /// The time of the lease timer, if one is set.
    pub(crate) watched: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Leased {
    pub(crate) token: Token,
    pub(crate) until: Option<Time>,
    /// For queries only.
    pub(crate) reserved: bool,
}

impl Tokens {
    /// Whether a token is held.
    pub(crate) fn is_there(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether jobs need a token.
    pub(crate) fn are_needed(&self) -> bool {
        self.alone.is_none()
    }

    /// Whether a job may be sent, as far as tokens are concerned.
    pub(crate) fn is_ready(&self) -> bool {
        !self.are_needed() || self.is_there()
    }

    /// Jobs that the instance runs at a time, if known.
    pub(crate) fn slots(&self) -> u16 {
        self.alone.map_or(0, NonZeroU16::get)
    }

    /// Frontends that share the instance: only this one, as soon as the worker says so.
    pub(crate) fn sharers(&self) -> u16 {
        if self.are_needed() { self.sharers } else { 1 }
    }

    /// Whether all held tokens are for queries only.
    pub(crate) fn are_reserved(&self) -> bool {
        !self.held.is_empty() && self.held.iter().all(|held| held.reserved)
    }

    /// The token for a job.
    pub(crate) fn spend(&mut self, role: Role) -> Option<Token> {
        let suits = |held: &Leased| role == Role::Deployed || !held.reserved;
        let at = self.held.iter().position(suits).or((!self.held.is_empty()).then_some(0))?;
        Some(self.held.remove(at).token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frontend_that_is_alone_shares_with_none() {
        let shared = Tokens { sharers: 3, ..Tokens::default() };
        assert_eq!(shared.sharers(), 3);
        assert_eq!(Tokens { alone: NonZeroU16::new(2), ..shared }.sharers(), 1);
    }
}
