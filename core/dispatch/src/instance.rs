//! An instance as the dispatcher knows it: what it serves, what it holds, how it has been doing.

use smallvec::SmallVec;

use super::arena::Key;
use super::doubt::Doubt;
use super::health::Health;
use super::idle::Room;
use super::job::Job;
use super::neighbours::Elsewhere;
use super::pool::Pool;
use super::tokens::Tokens;
use super::{InstanceId, Site, Time};

/// An instance that joined and has not left.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) id: InstanceId,
    pub(super) site: Site,
    pub(super) slots: u16,
    /// Batches that it may hold for each slot.
    pub(super) ahead: u16,
    /// When it last did something, or was given something to do.
    pub(super) heard: Time,
    /// It holds work that it was given ahead of time, and has done nothing for too long.
    pub(super) silent: bool,
    /// A timer is set to see whether it is silent.
    pub(super) watched: bool,
    pub(super) serves: SmallVec<[Serves; 2]>,
    pub(super) jobs: SmallVec<[Key<Job>; 2]>,
    pub(super) draining: bool,
    /// How fast and how right it has been.
    pub(super) health: Health,
    /// Of an instance that gives tokens: it is sent no job without, unless it is of a fast model.
    pub(super) tokens: Option<Tokens>,
    /// What other frontends that are known have to do with it.
    pub(super) elsewhere: Elsewhere,
    /// When they last held nothing there any more.
    pub(super) let_go: Time,
    /// Until when it gets only what others have no room for.
    pub(super) warm_at: Option<Time>,
}

/// What an instance may be given of one pool's work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serves {
    pub(super) pool: Key<Pool>,
    pub(super) deployed: bool,
    pub(super) parity: bool,
    pub(super) backup: bool,
    pub(super) stand_in: bool,
    /// It takes queries of this pool.
    pub(super) data: bool,
    /// It takes parities and backups of this pool.
    pub(super) redundancy: bool,
    /// Batches that this pool lets it hold for each slot; unknown while it has had none.
    pub(super) allowed: Option<u16>,
    /// How right its answers have been.
    pub(super) doubt: Doubt,
    /// How often this pool's model failed on it.
    pub(super) health: Health,
}

impl Instance {
    /// It takes new work, when it has room.
    pub(super) fn usable(&self) -> bool {
        !self.draining && self.health.in_service()
    }

    /// Nothing but its slowness keeps it from being usable.
    pub(super) fn slow_only(&self) -> bool {
        !self.draining && self.health.out_for_slowness()
    }

    /// What it has room for, in pools whose model works on it. While it warms up it never counts as empty: those that
    /// have nothing to do come first.
    pub(super) fn room(&self) -> Room {
        let room = match &self.tokens {
            Some(tokens) if tokens.are_needed() => tokens.is_there() || self.has_room_ahead(tokens.sharers()),
            _ => self.jobs.len() + usize::from(self.elsewhere.jobs) < self.most_held(),
        };
        match self.jobs.len() {
            _ if !room || !self.usable() => Room::None,
            0 if self.warm_at.is_none()
                && self.is_ours()
                && self.tokens.as_ref().is_none_or(Tokens::is_ready) =>
            {
                Room::Empty
            }
            _ => Room::Partial,
        }
    }

    pub(super) fn serves(&self, pool: Key<Pool>) -> Option<&Serves> {
        self.serves.iter().find(|serves| serves.pool == pool)
    }
}

impl Serves {
    /// It takes queries of this pool, while the instance is usable.
    pub(super) fn takes_queries(&self) -> bool {
        self.data && self.health.in_service()
    }

    /// Likewise parities and backups.
    pub(super) fn takes_redundancy(&self) -> bool {
        self.redundancy && self.health.in_service()
    }
}
