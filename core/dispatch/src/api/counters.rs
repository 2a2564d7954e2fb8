//! Counters of a pool, for metrics and the console.

use super::Reason;

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
    /// Queries whose client cancelled.
    cancelled,
    /// Queries shed from the queue because they could not meet their deadline.
    given_up,
    /// Jobs started, of every role.
    jobs,
    /// Batches started: the first jobs of queries.
    batches,
    /// Queries in these batches.
    batch_rows,
    /// Jobs dropped while they ran because no query needed them.
    dropped,
    /// Late jobs that were duplicated.
    hedges,
    /// Late jobs that were not, because the budget was spent or too much work waited.
    hedges_refused,
    /// Queries answered by a hedge. Moved jobs and replicas do not count.
    hedges_won,
    /// Copies on slow instances that show whether they are still slow.
    explored,
    /// Jobs queued ahead at an instance that fell silent, and moved to another.
    moved,
    /// Coding groups that were encoded.
    groups,
    /// Encoded groups that were not full.
    groups_partial,
    /// Groups that were never encoded: too small when they expired, or not needed.
    groups_dissolved,
    /// Parity jobs started.
    parities,
    /// Parity jobs never started: useless by the time an instance had room, or above the limit of waiting jobs.
    parities_unsent,
    /// Parity outputs that arrived too late to be used.
    parities_late,
    /// Predictions reconstructed.
    reconstructions,
    /// Reconstructions given to clients.
    reconstructions_served,
    /// Reconstructions not given because their confidence was too low.
    reconstructions_unsure,
    /// Queries answered by the backup model.
    backups_served,
    /// Queries given to a stand-in on an idle instance.
    stand_ins_spare,
    /// Queries given to a stand-in because they were late.
    stand_ins_late,
    /// Late queries that got no stand-in because the budget was spent.
    stand_ins_refused,
    /// Queries answered by a stand-in.
    stand_ins_served,
    /// Times at which no instance with the deployed model answered, and stand-ins began to.
    outages,
    /// Queries answered by a stand-in because no instance with the deployed model answered. The bound does not
    /// count them.
    stand_ins_outage,
    /// Stand-ins' answers not given because their confidence was too low.
    stand_ins_unsure,
    /// Stand-ins' answers held back longer because the bound on approximate answers was reached.
    stand_ins_over_bound,
    /// Stand-ins' answers that no client received.
    stand_ins_wasted,
    /// Failed jobs whose queries were tried again.
    retries,
    /// Failed jobs whose queries were not retried, because the budget was spent.
    retries_refused,
    /// Instances ejected for being slow.
    ejected_slow,
    /// Predictions compared with their parities or stand-ins.
    compared,
    /// Compared predictions that disagreed.
    disagreed,
    /// Suspicions of wrong answers.
    suspected,
    /// Instances ejected for wrong answers.
    ejected_wrong,
    /// Instances ejected for failing.
    ejected_failing,
    /// Ejections refused because the remaining instances could not take the load.
    ejections_refused,
    /// Slow instances readmitted early because a queue built up.
    recalled,
}

impl Counters {
    /// Counts an ejection.
    pub(crate) fn count_ejection(&mut self, reason: Reason) {
        match reason {
            Reason::Slow => self.ejected_slow += 1,
            Reason::Failing => self.ejected_failing += 1,
            Reason::Wrong => self.ejected_wrong += 1,
        }
    }
}
