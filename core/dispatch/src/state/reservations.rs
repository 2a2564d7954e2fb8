//! Reservations of a pool at instances whose tokens are held by other frontends.

use smallvec::SmallVec;

use crate::api::{Class, Note, Payer, PoolId, Time, Wanted};
use crate::state::keys::PoolKey;

/// A reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) pool: PoolKey,
    /// The name of the pool, which may be gone.
    pub(crate) id: PoolId,
    pub(crate) payer: Payer,
    pub(crate) class: Class,
    pub(crate) since: Time,
    /// The arrival of its query, as last reported.
    pub(crate) first: Time,
    pub(crate) note: Note,
}

impl Asked {
    /// The work, as orders name it.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted { pool: self.id, payer: self.payer }
    }
}

/// A pool's reservations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asking {
    pub(crate) reserved: ByPayer,
    /// Reservations in addition to the first ones.
    pub(crate) widened: u32,
    /// The payer whose reservations were last brought up to date, and the arrival of its first query then.
    pub(crate) counted: Option<(Payer, Time)>,
    /// The pool is in the list of pools with reservations.
    pub(crate) listed: bool,
    /// The timer for more reservations is set.
    pub(crate) timed: bool,
}

/// Jobs by class: late, query, spare.
pub(crate) type Jobs = [u32; 3];

pub(crate) const NO_JOBS: Jobs = [0; 3];

/// Jobs by payer and by class. There is nearly always one payer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByPayer(pub(crate) SmallVec<[(Payer, Jobs); 1]>);

impl ByPayer {
    pub(crate) fn of(&self, payer: Payer) -> Jobs {
        self.0.iter().find(|(known, _)| *known == payer).map_or(NO_JOBS, |(_, jobs)| *jobs)
    }

    pub(crate) fn count(&mut self, payer: Payer, class: Class) -> &mut u32 {
        let at = self.0.iter().position(|(known, _)| *known == payer).unwrap_or_else(|| {
            self.0.push((payer, NO_JOBS));
            self.0.len() - 1
        });
        &mut self.0[at].1[usize::from(class.byte())]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, jobs)| *jobs == NO_JOBS)
    }
}
