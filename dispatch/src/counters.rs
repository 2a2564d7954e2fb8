//! What happened in a pool, counted for metrics.

/// Counts since the pool was set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Queries that arrived.
    pub arrived: u64,
    /// Queries whose client went away.
    pub cancelled: u64,
    /// Queries refused from the queue: more waited than could be done in time.
    pub given_up: u64,
    /// Jobs started, of every role.
    pub jobs: u64,
    /// Jobs that nobody waited for any more while they ran.
    pub dropped: u64,
    /// Late jobs that were duplicated.
    pub hedges: u64,
    /// Late jobs that were not, because the budget was spent or too much work waited.
    pub hedges_refused: u64,
    /// Queries answered by a copy.
    pub hedges_won: u64,
    /// Coding groups that were encoded.
    pub groups: u64,
    /// Of these, groups that were not full.
    pub groups_partial: u64,
    /// Groups that were never encoded: too small when they were old, or with nothing left to wait for.
    pub groups_dissolved: u64,
    /// Parity jobs started.
    pub parities: u64,
    /// Parity jobs never started: useless by the time there was room, or more than may wait.
    pub parities_unsent: u64,
    /// Parity outputs that came when nobody needed them any more.
    pub parities_late: u64,
    /// Predictions reconstructed.
    pub reconstructions: u64,
    /// Of these, given to clients.
    pub reconstructions_served: u64,
    /// Of these, not given for want of confidence.
    pub reconstructions_unsure: u64,
    /// Queries answered by the backup model.
    pub backups_served: u64,
    /// Queries given to a stand-in at once, as an instance was idle.
    pub stand_ins_spare: u64,
    /// Queries given to a stand-in because they were late.
    pub stand_ins_late: u64,
    /// Late queries that were not, because the budget was spent.
    pub stand_ins_refused: u64,
    /// Queries answered by a stand-in.
    pub stand_ins_served: u64,
    /// Stand-ins' answers that were not given for want of confidence.
    pub stand_ins_unsure: u64,
    /// Times that a stand-in's answer was held back for longer, because too many were given.
    pub stand_ins_over_bound: u64,
    /// Stand-ins' answers that nobody was given.
    pub stand_ins_wasted: u64,
    /// Failed jobs whose queries were tried again.
    pub retries: u64,
    /// Failed jobs whose queries were not, because the budget was spent.
    pub retries_refused: u64,
    /// Instances ejected for being slow.
    pub ejected_slow: u64,
    /// Predictions compared with what their parities or stand-ins say of them.
    pub compared: u64,
    /// Of these, predictions that they disagree with.
    pub disagreed: u64,
    /// Times that an instance became suspect of wrong answers.
    pub suspected: u64,
    /// Instances ejected for wrong answers.
    pub ejected_wrong: u64,
    /// Instances ejected for failing.
    pub ejected_failing: u64,
    /// Slow, failing or suspect instances that were kept because the others could not do without them.
    pub ejections_refused: u64,
    /// Slow instances that were called back because work piled up without them.
    pub recalled: u64,
}
