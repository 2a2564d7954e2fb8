//! A coding group between its encoding and its end: what the ledger keeps of it.

use std::sync::Arc;

use parm_dispatch::{QueryId, Time};
use parm_encoder::Set;
use parm_protocol::NamedTensor;
use smallvec::SmallVec;

use super::coder::Coder;
use crate::serve::outputs::Outputs;
use crate::serve::pool::Pool;

/// A group that is encoded or about to be.
pub(crate) struct Group {
    pub(crate) pool: Arc<Pool>,
    /// The code that it was encoded with: another may be in force by the time it is decoded.
    pub(crate) coder: Arc<Coder>,
    /// Its members.
    pub(crate) ids: SmallVec<[QueryId; 4]>,
    /// Queries in each slot.
    pub(crate) slots: SmallVec<[u16; 8]>,
    /// The latest of its members' deadlines.
    pub(crate) deadline: Time,
    /// What each parity model is to run, once it is encoded.
    pub(crate) queries: Vec<ParityQuery>,
    /// Predictions that were decoded and not asked for yet.
    pub(crate) decoded: SmallVec<[(QueryId, Arc<Outputs>); 2]>,
}

/// The inputs of one parity job.
#[derive(Clone, Debug)]
pub(crate) struct ParityQuery {
    pub(crate) inputs: Vec<NamedTensor>,
    pub(crate) rows: usize,
}

impl Group {
    /// The slots that hold a query of this row.
    pub(crate) fn members(&self, row: usize) -> Set {
        let held = |(_, queries): &(usize, &u16)| usize::from(**queries) > row;
        self.slots.iter().enumerate().filter(held).map(|(slot, _)| slot).collect()
    }

    /// What was decoded for a query.
    pub(crate) fn reconstruction(&self, query: QueryId) -> Option<Arc<Outputs>> {
        self.decoded.iter().find(|(of, _)| *of == query).map(|(_, outputs)| outputs.clone())
    }
}
