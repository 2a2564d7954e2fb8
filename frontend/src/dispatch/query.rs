//! A query between its arrival and its answer. Once answered it is gone: whatever still names it finds nothing.

use smallvec::SmallVec;

use super::arena::Key;
use super::job::Job;
use super::pool::Pool;
use super::{Accept, QueryId, ShapeId, Time};

/// A query without an answer.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) id: QueryId,
    pub(super) pool: Key<Pool>,
    pub(super) shape: ShapeId,
    pub(super) priority: u8,
    pub(super) arrived: Time,
    pub(super) accept: Accept,
    pub(super) codable: bool,
    /// It waits in its pool's queue, never tried.
    pub(super) queued: bool,
    /// Times that an instance failed it.
    pub(super) failures: u8,
    /// Retries and hedges of it that wait for an instance.
    pub(super) extras: u8,
    /// The jobs that run it now.
    pub(super) jobs: SmallVec<[Key<Job>; 2]>,
}

/// The queries of a batch, in row order.
pub(super) type Keys = SmallVec<[Key<Query>; 2]>;
