//! What happened in a pool, counted for metrics.

/// Counts since the pool was set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Queries that arrived.
    pub arrived: u64,
    /// Queries whose client went away.
    pub cancelled: u64,
    /// Jobs started, of every role.
    pub jobs: u64,
    /// Jobs that nobody waited for any more while they ran.
    pub dropped: u64,
    /// Late jobs that were duplicated.
    pub hedges: u64,
    /// Late jobs that were not, because the budget was spent.
    pub hedges_refused: u64,
    /// Queries answered by a copy.
    pub hedges_won: u64,
    /// Failed jobs whose queries were tried again.
    pub retries: u64,
    /// Failed jobs whose queries were not, because the budget was spent.
    pub retries_refused: u64,
    /// Instances ejected for being slow.
    pub ejected_slow: u64,
    /// Instances ejected for failing.
    pub ejected_failing: u64,
    /// Slow instances that were kept because the others could not do without them.
    pub ejections_refused: u64,
}
