//! What happened in a pool, counted for metrics and for those who watch.

/// The counts, and their names and values in the order in which they stand here.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the pool was set up.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Their names.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Their values, in the order of the names.
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$name),*]
            }
        }
    };
}

counters! {
    /// Queries that arrived.
    arrived,
    /// Queries whose client went away.
    cancelled,
    /// Queries refused from the queue: more waited than could be done in time.
    given_up,
    /// Jobs started, of every role.
    jobs,
    /// Jobs that nobody waited for any more while they ran.
    dropped,
    /// Late jobs that were duplicated.
    hedges,
    /// Late jobs that were not, because the budget was spent or too much work waited.
    hedges_refused,
    /// Queries answered by a hedge: not by a moved job or a replica.
    hedges_won,
    /// Jobs given ahead of time to an instance that then did nothing, and given to another.
    moved,
    /// Coding groups that were encoded.
    groups,
    /// Of these, groups that were not full.
    groups_partial,
    /// Groups that were never encoded: too small when they were old, or with nothing left to wait for.
    groups_dissolved,
    /// Parity jobs started.
    parities,
    /// Parity jobs never started: useless by the time there was room, or more than may wait.
    parities_unsent,
    /// Parity outputs that came when nobody needed them any more.
    parities_late,
    /// Predictions reconstructed.
    reconstructions,
    /// Of these, given to clients.
    reconstructions_served,
    /// Of these, not given for want of confidence.
    reconstructions_unsure,
    /// Queries answered by the backup model.
    backups_served,
    /// Queries given to a stand-in at once, as an instance was idle.
    stand_ins_spare,
    /// Queries given to a stand-in because they were late.
    stand_ins_late,
    /// Late queries that were not, because the budget was spent.
    stand_ins_refused,
    /// Queries answered by a stand-in.
    stand_ins_served,
    /// Stand-ins' answers that were not given for want of confidence.
    stand_ins_unsure,
    /// Times that a stand-in's answer was held back for longer, because too many were given.
    stand_ins_over_bound,
    /// Stand-ins' answers that nobody was given.
    stand_ins_wasted,
    /// Failed jobs whose queries were tried again.
    retries,
    /// Failed jobs whose queries were not, because the budget was spent.
    retries_refused,
    /// Instances ejected for being slow.
    ejected_slow,
    /// Predictions compared with what their parities or stand-ins say of them.
    compared,
    /// Of these, predictions that they disagree with.
    disagreed,
    /// Times that an instance became suspect of wrong answers.
    suspected,
    /// Instances ejected for wrong answers.
    ejected_wrong,
    /// Instances ejected for failing.
    ejected_failing,
    /// Slow, failing or suspect instances that were kept because the others could not do without them.
    ejections_refused,
    /// Slow instances that were called back because work piled up without them.
    recalled,
}
