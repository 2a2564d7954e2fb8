//! Reservations of a pool at instances whose tokens are held by other frontends.

use smallvec::SmallVec;

use crate::api::{Class, Note, Payer, Time};
use crate::state::keys::PoolKey;

/// A reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) pool: PoolKey,
    pub(crate) payer: Payer,
    pub(crate) class: Class,
    pub(crate) since: Time,
    /// The arrival of its query, as last reported.
    pub(crate) first: Time,
    pub(crate) note: Note,
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

/// Jobs by payer and by class (late, query). There is nearly always one payer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByPayer(pub(crate) SmallVec<[(Payer, [u32; 2]); 1]>);

impl ByPayer {
    pub(crate) fn of(&self, payer: Payer) -> [u32; 2] {
        self.0.iter().find(|(known, _)| *known == payer).map_or([0, 0], |(_, jobs)| *jobs)
    }

    pub(crate) fn count(&mut self, payer: Payer, class: Class) -> &mut u32 {
        let at = self.0.iter().position(|(known, _)| *known == payer).unwrap_or_else(|| {
            self.0.push((payer, [0, 0]));
            self.0.len() - 1
        });
        &mut self.0[at].1[usize::from(class.byte())]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, jobs)| *jobs == [0, 0])
    }
}
