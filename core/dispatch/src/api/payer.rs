//! The share that pays for a job.

use super::{PoolId, ShareId};

/// The account that a job is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Payer {
    /// A configured share.
    Share(ShareId),
    /// The pool's own account.
    Model(PoolId),
}

/// A job that requests a slot of an instance which other frontends use as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wanted {
    /// The pool of its queries.
    pub pool: PoolId,
    /// The account that pays.
    pub payer: Payer,
}
