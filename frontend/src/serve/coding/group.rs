//! Coding group in the ledger, from its encoding to its end.

use std::sync::Arc;

use parm_dispatch::{QueryId, Time};
use parm_encoder::Set;
use parm_protocol::NamedTensor;
use smallvec::SmallVec;

use super::coder::Coder;
use crate::serve::outputs::Outputs;
use crate::serve::pool::Pool;

/// A group that is being encoded or has been.
pub(crate) struct Group {
    pub(crate) pool: Arc<Pool>,
    /// The code that it was encoded with, as the pool's code may change before it is decoded.
    pub(crate) coder: Arc<Coder>,
    /// Its members.
    pub(crate) ids: SmallVec<[QueryId; 4]>,
    /// Number of queries in each slot.
    pub(crate) slots: SmallVec<[u16; 8]>,
    /// Latest deadline of its members.
    pub(crate) deadline: Time,
    /// Inputs of each parity model, once it is encoded.
    pub(crate) queries: Vec<ParityQuery>,
    /// Decoded predictions that are not used yet.
    pub(crate) decoded: SmallVec<[(QueryId, Arc<Outputs>); 2]>,
}

/// Inputs of one parity job.
#[derive(Clone, Debug)]
pub(crate) struct ParityQuery {
    pub(crate) inputs: Vec<NamedTensor>,
    pub(crate) rows: usize,
}

impl Group {
    /// Slots that hold a query of this row.
    pub(crate) fn members(&self, row: usize) -> Set {
        let held = |(_, queries): &(usize, &u16)| usize::from(**queries) > row;
        self.slots.iter().enumerate().filter(held).map(|(slot, _)| slot).collect()
    }

    /// The decoded prediction of a query.
    pub(crate) fn reconstruction(&self, query: QueryId) -> Option<Arc<Outputs>> {
        self.decoded.iter().find(|(of, _)| *of == query).map(|(_, outputs)| outputs.clone())
    }
}
