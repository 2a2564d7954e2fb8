//! What the frontend reads from the dispatcher about models, instances and shares, for metrics, the console, the admin API
//! and discovery. The driver makes these readings; all others read only the types of this file.

use std::fmt;
use std::time::Duration;

use parm_dispatch::Reason;
pub(crate) use parm_dispatch::{InstanceId, PoolId, QueryId, Time};
use parm_protocol::rounded;

/// How a model is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ModelReading {
    /// What happened so far.
    pub(crate) counters: Counters,
    /// Queries that wait for an instance and were never tried.
    pub(crate) queued: u32,
    /// Queries without an answer.
    pub(crate) unanswered: u32,
    /// Jobs that run.
    pub(crate) running: u32,
    /// Slots that queries keep busy.
    pub(crate) busy: f64,
    /// Instances that would be usable if none was ejected.
    pub(crate) members: u32,
    /// Instances that take the model's jobs: neither draining nor ejected.
    pub(crate) usable_instances: u32,
    /// Their slots.
    pub(crate) slots: u32,
    /// Median and high quantile of the times of the model's runs; `None` while too few are known.
    pub(crate) service: Option<[Duration; 2]>,
    /// The age at which a job counts as late.
    pub(crate) late_after: Option<Duration>,
    /// Retries that the budget allows now, and at most.
    pub(crate) retries: [f64; 2],
    /// Copies that the budget allows now, and at most.
    pub(crate) hedges: [f64; 2],
    /// Approximate answers, how many were allowed, and all answers; `None` without a stand-in.
    pub(crate) approximate: Option<[u32; 3]>,
    /// Stand-ins answer because no instance with the model does.
    pub(crate) in_outage: bool,
    /// The time of its stand-in's runs of 1, 2, 4 and 8 rows, as a share of a run of one row of the model; `None` without a
    /// stand-in.
    pub(crate) stand_in_cost: Option<[f64; 4]>,
    /// The share of the latest predictions that their stand-ins agreed with.
    pub(crate) agreement: Option<f64>,
    /// The agreement is below the floor: clients receive no stand-in's answer.
    pub(crate) withheld: bool,
}

impl ModelReading {
    /// The share of the usable slots that queries keep busy.
    pub(crate) fn utilisation(&self) -> f64 {
        self.busy / f64::from(self.slots.max(1))
    }
}

/// The coding groups of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupsReading {
    /// Groups that take members: how many they have room for, how many they have, and the age of the first one.
    pub(crate) open: Vec<(u8, u8, Duration)>,
    /// The number of groups encoded since the last reading, by size.
    pub(crate) made: Vec<(u8, u32)>,
}

/// How an instance is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InstanceReading {
    /// Whether it gets queries, of any model.
    pub(crate) in_service: bool,
    /// What is wrong with it.
    pub(crate) condition: Condition,
    /// The time until its next trial, if it is out of service.
    pub(crate) trial_in: Option<Duration>,
    /// How many times as long as at the median instance a run takes; `None` if as long.
    pub(crate) slower: Option<f64>,
    /// Its compared answers, and how many of them agreed. Old ones fade.
    pub(crate) compared: Option<[f64; 2]>,
    /// The age of the oldest job that it holds.
    pub(crate) oldest: Option<Duration>,
}

/// What is wrong with an instance. It may be in service nevertheless.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Condition {
    /// It answers as usual.
    #[default]
    Well,
    /// Its runs take so many times as long as usual.
    Slow(f32),
    /// It answers nothing: its oldest job has this age, where one usually takes the other time.
    Silent { oldest: Duration, usual: Duration },
    /// Its jobs fail.
    Failing,
    /// It takes no jobs.
    #[allow(dead_code, reason = "the old dispatcher does not tell it")]
    Unreachable,
    /// It fails and recovers, so many times within a minute.
    #[allow(dead_code, reason = "the old dispatcher does not tell it")]
    Flapping(u8),
    /// Its answers disagree with those of stand-ins or parities.
    Wrong,
}

impl Condition {
    /// The names of all conditions, by their numbers.
    pub(crate) const NAMES: [Option<&'static str>; 7] = [
        None,
        Some("slow"),
        Some("silent"),
        Some("failing"),
        Some("unreachable"),
        Some("flapping"),
        Some("wrong"),
    ];

    /// Whether its jobs fail, so that the last error is the cause.
    pub(crate) fn fails(&self) -> bool {
        matches!(self, Self::Failing | Self::Unreachable | Self::Flapping(_))
    }

    /// Its number.
    pub(crate) fn number(&self) -> usize {
        match self {
            Self::Well => 0,
            Self::Slow(_) => 1,
            Self::Silent { .. } => 2,
            Self::Failing => 3,
            Self::Unreachable => 4,
            Self::Flapping(_) => 5,
            Self::Wrong => 6,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Well => f.write_str("it answers as usual"),
            Self::Slow(times) => write!(f, "slow: its jobs take {times:.1} times as long as usual"),
            Self::Silent { oldest, usual } => {
                write!(f, "silent: it holds a job for {:?}", rounded(*oldest))?;
                if usual.is_zero() {
                    Ok(())
                } else {
                    write!(f, ", which usually takes {:?}", rounded(*usual))
                }
            }
            Self::Failing => f.write_str("failing: its jobs fail"),
            Self::Unreachable => f.write_str("unreachable: it takes no jobs"),
            Self::Flapping(times) => {
                write!(f, "flapping: it failed and recovered {times} times within a minute")
            }
            Self::Wrong => f.write_str("wrong: its answers disagree with those of other instances"),
        }
    }
}

/// Who pays for jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Payer {
    /// A configured share, by its number.
    Share(u32),
    /// A model, for queries without a share.
    Model(PoolId),
}

/// The counts, and their names and values in the order in which they stand here.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened to a model's queries and jobs since it was set up.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Counters {
            /// Their names.
            pub(crate) const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Their values, in the order of the names.
            pub(crate) fn values(&self) -> Vec<u64> {
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
    /// Copies of late queries.
    hedges,
    /// Late queries that got no copy at once, because the budget was spent or too many queries waited.
    hedges_refused,
    /// Queries answered by a copy. Replicas do not count.
    hedges_won,
    /// Copies that no query waits for, to measure or to try an instance.
    explored,
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
    /// Queries given to a stand-in because they were late.
    stand_ins_late,
    /// Queries answered by a stand-in.
    stand_ins_served,
    /// Times at which no instance with the deployed model answered, and stand-ins began to.
    outages,
    /// Queries answered by a stand-in because no instance with the deployed model answered. The bound does not
    /// count them.
    stand_ins_outage,
    /// Stand-ins' answers not given because their confidence was too low.
    stand_ins_unsure,
    /// Late queries that waited for a stand-in's answer, because the bound on approximate answers was reached.
    stand_ins_over_bound,
    /// Stand-ins' answers that no client received.
    stand_ins_wasted,
    /// Failed jobs whose queries were tried again.
    retries,
    /// Failed jobs whose queries were not retried, because the budget was spent.
    retries_refused,
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
    /// Instances ejected because they answered too late or not at all.
    ejected_silent,
    /// Ejections refused because too few instances would remain.
    ejections_refused,
}

impl From<parm_dispatch::Counters> for Counters {
    fn from(old: parm_dispatch::Counters) -> Self {
        Self {
            arrived: old.arrived,
            cancelled: old.cancelled,
            given_up: old.given_up,
            jobs: old.jobs,
            batches: old.batches,
            batch_rows: old.batch_rows,
            dropped: old.dropped,
            hedges: old.hedges,
            hedges_refused: old.hedges_refused,
            hedges_won: old.hedges_won,
            explored: old.explored,
            groups: old.groups,
            groups_partial: old.groups_partial,
            groups_dissolved: old.groups_dissolved,
            parities: old.parities,
            parities_unsent: old.parities_unsent,
            parities_late: old.parities_late,
            reconstructions: old.reconstructions,
            reconstructions_served: old.reconstructions_served,
            reconstructions_unsure: old.reconstructions_unsure,
            backups_served: old.backups_served,
            stand_ins_late: old.stand_ins_late,
            stand_ins_served: old.stand_ins_served,
            outages: old.outages,
            stand_ins_outage: old.stand_ins_outage,
            stand_ins_unsure: old.stand_ins_unsure,
            stand_ins_over_bound: old.stand_ins_over_bound,
            stand_ins_wasted: old.stand_ins_wasted,
            retries: old.retries,
            retries_refused: old.retries_refused,
            compared: old.compared,
            disagreed: old.disagreed,
            suspected: old.suspected,
            ejected_wrong: old.ejected_wrong,
            ejected_failing: old.ejected_failing,
            ejected_silent: old.ejected_slow,
            ejections_refused: old.ejections_refused,
        }
    }
}

impl From<parm_dispatch::PoolReading> for ModelReading {
    fn from(old: parm_dispatch::PoolReading) -> Self {
        let status = old.status;
        Self {
            counters: status.counters.into(),
            queued: status.queued,
            unanswered: status.unanswered,
            running: status.running,
            busy: old.busy,
            members: old.members,
            usable_instances: status.usable_instances,
            slots: old.slots,
            service: old.service,
            late_after: old.late_after,
            retries: old.retries.into(),
            hedges: old.hedges.into(),
            approximate: old.approximate,
            in_outage: status.in_outage,
            stand_in_cost: status.stand_in_cost.map(|cost| cost.rows),
            agreement: status.agreement,
            withheld: status.withheld,
        }
    }
}

impl From<parm_dispatch::GroupsReading> for GroupsReading {
    fn from(old: parm_dispatch::GroupsReading) -> Self {
        let open = old.open.into_iter().map(|group| (group.k, group.members, group.age));
        Self { open: open.collect(), made: old.made }
    }
}

impl From<parm_dispatch::Payer> for Payer {
    fn from(old: parm_dispatch::Payer) -> Self {
        match old {
            parm_dispatch::Payer::Share(share) => Self::Share(share.0),
            parm_dispatch::Payer::Model(pool) => Self::Model(pool),
        }
    }
}

/// What the driver knows about an instance next to the dispatcher.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// The age of its oldest job, and the usual time of such jobs.
    pub(super) oldest: Option<(Duration, Option<Duration>)>,
    /// How many times as long as usual its last jobs took.
    pub(super) slowness: Option<f64>,
}

/// A job of this age, and this multiple of the usual time, shows that its instance is silent.
const LONG: Duration = Duration::from_secs(1);
const TIMES: u32 = 10;

/// An instance is slow if its last jobs took so many times as long as usual.
const SLOW: f64 = 2.0;

impl InstanceReading {
    pub(super) fn new(old: &parm_dispatch::InstanceReading, seen: Seen) -> Self {
        let silent = seen.oldest.and_then(|(oldest, usual)| {
            let usual = usual.unwrap_or_default();
            (oldest >= LONG.max(usual.saturating_mul(TIMES))).then_some(Condition::Silent { oldest, usual })
        });
        let slowness = seen.slowness.or(old.slower).unwrap_or(1.0);
        let slow = Condition::Slow(slowness as f32);
        let condition = match old.out_for {
            Some(Reason::Wrong) => Condition::Wrong,
            Some(Reason::Slow) => slow,
            Some(Reason::Failing) => silent.unwrap_or(Condition::Failing),
            None => silent.or((slowness >= SLOW).then_some(slow)).unwrap_or_default(),
        };
        Self {
            in_service: old.in_service,
            condition,
            trial_in: old.probe_in,
            slower: old.slower,
            compared: old.compared.map(<[f64; 2]>::from),
            oldest: seen.oldest.map(|(age, _)| age),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_condition_begins_with_its_name() {
        let (oldest, usual) = (Duration::from_millis(2100), Duration::from_millis(20));
        let silent = Condition::Silent { oldest, usual };
        let rest = [Condition::Failing, Condition::Unreachable, Condition::Flapping(3), Condition::Wrong];
        let troubles = [Condition::Slow(2.5), silent].into_iter().chain(rest);
        for (condition, name) in troubles.zip(&Condition::NAMES[1..]) {
            assert_eq!(Condition::NAMES[condition.number()], *name);
            assert!(condition.to_string().starts_with(name.unwrap()), "{condition}");
        }
        assert_eq!(silent.to_string(), "silent: it holds a job for 2.1s, which usually takes 20ms");
        assert_eq!(Condition::NAMES[Condition::Well.number()], None);
    }
}
