//! What the frontend reads from the dispatcher about models, instances and shares, for metrics, the console, the admin API
//! and discovery. The driver makes these readings; all others read only the types of this file.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parm_protocol::rounded;
use parm_shares::Account;

pub(crate) use super::instance::InstanceId;
pub(crate) use super::pool::PoolId;
use super::state::State;
pub(crate) use parm_dispatcher::{QueryKey as QueryId, Time};

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
    Unreachable,
    /// It fails and recovers, so many times within a minute.
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

impl State {
    /// How a model is.
    pub(super) fn reading(&self, now: Time, id: PoolId) -> Option<ModelReading> {
        let lines = self.pools.get(&id)?;
        let own = self.dispatcher.reading(now, lines.own)?;
        let known = self.agreements.of(id);
        let keys = lines.keys();
        let others = || [keys.helper, keys.parity].into_iter().flatten();
        let of_others = others().filter_map(|key| self.dispatcher.counters(key));
        let [jobs, dropped] = lines.past_jobs;
        let (jobs, dropped) = of_others
            .fold((jobs + own.counters.jobs, dropped + own.counters.stopped), |(jobs, dropped), other| {
                (jobs + other.jobs, dropped + other.stopped)
            });
        let is_backup = lines.pool.codes().backup.is_some();
        let by_helper = own.counters.by_stand_in;
        let compared = known.map(|known| known.counts).unwrap_or_default();
        let coded = self.coded.get(&id).map(|coded| coded.coder.counters()).unwrap_or_default();
        let counters = Counters {
            arrived: own.counters.submitted,
            cancelled: own.counters.cancelled,
            given_up: own.counters.overloaded,
            jobs,
            batches: own.counters.batches,
            batch_rows: own.counters.first,
            dropped,
            hedges: own.counters.hedged,
            hedges_refused: own.counters.hedges_refused,
            hedges_won: own.counters.hedges_won,
            explored: own.counters.explored,
            groups: coded.groups,
            groups_partial: coded.groups_partial,
            groups_dissolved: coded.groups_dissolved,
            parities: coded.parities,
            parities_unsent: coded.parities_unsent,
            parities_late: coded.parities_late,
            reconstructions: coded.reconstructions,
            reconstructions_served: coded.reconstructions_served,
            reconstructions_unsure: coded.reconstructions_unsure,
            backups_served: if is_backup { by_helper } else { 0 },
            stand_ins_late: own.counters.stood_in,
            stand_ins_served: if is_backup { 0 } else { by_helper },
            outages: lines.pool.outages.load(Ordering::Relaxed),
            stand_ins_outage: own.counters.in_outage,
            stand_ins_unsure: compared.unsure,
            stand_ins_over_bound: own.counters.over_bound,
            stand_ins_wasted: compared.answered.saturating_sub(by_helper),
            retries: own.counters.retried,
            retries_refused: own.counters.retries_refused,
            compared: compared.compared,
            disagreed: compared.disagreed,
            suspected: compared.suspected,
            ejected_wrong: compared.ejected,
            ejected_failing: own.counters.out_failing,
            ejected_silent: own.counters.out_silent,
            ejections_refused: own.counters.kept,
        };
        Some(ModelReading {
            counters,
            queued: own.queued,
            unanswered: u32::try_from(own.counters.unanswered()).unwrap_or(u32::MAX),
            running: own.running,
            busy: f64::from(own.busy),
            members: own.members,
            usable_instances: own.usable_instances,
            slots: own.slots,
            service: own.service,
            late_after: own.late_after,
            retries: own.retries,
            hedges: own.hedges,
            approximate: own.approximate,
            in_outage: own.in_outage,
            stand_in_cost: own.stand_in_cost.or(lines.cost.map(|cost| cost.rows)),
            agreement: known.and_then(|known| known.agreement.share()),
            withheld: known.is_some_and(|known| known.agreement.is_withheld()),
        })
    }

    /// The coding groups of a model.
    pub(super) fn groups(&mut self, now: Time, id: PoolId) -> Option<GroupsReading> {
        let is_coded = self.pools.get(&id)?.parity.is_some();
        self.coded.get_mut(&id).filter(|_| is_coded).map(|coded| {
            let open = coded.coder.open();
            let open = open.map(|own| (own.size as u8, own.members as u8, now.since(own.since))).collect();
            let made = coded.coder.take_made();
            GroupsReading { open, made: made.into_iter().map(|(k, count)| (k as u8, count)).collect() }
        })
    }

    /// How an instance is.
    pub(super) fn instance(&self, now: Time, id: InstanceId) -> Option<InstanceReading> {
        let key = *self.keys.get(&id)?;
        let own = self.dispatcher.instance(now, key)?;
        let oldest = self.running.values().filter(|running| running.at == key).map(|own| own.started).min();
        let compared = self.agreements.compared(key);
        Some(InstanceReading {
            in_service: own.in_service,
            condition: own.condition.into(),
            trial_in: own.trial_in,
            slower: own.slower,
            compared,
            oldest: oldest.map(|since| now.since(since)),
        })
    }

    /// The accounts of all payers.
    pub(super) fn accounts(&self) -> Vec<(Payer, Account)> {
        let payer = |payer| match payer {
            parm_dispatcher::Payer::Share(share) => Some(Payer::Share(share.0)),
            parm_dispatcher::Payer::Model(model) => self.models.get(&model).copied().map(Payer::Model),
        };
        self.dispatcher.accounts().filter_map(|(of, account)| Some((payer(of)?, account))).collect()
    }

    /// The times of a model's runs.
    pub(super) fn service(&self, id: PoolId) -> Option<[Duration; 2]> {
        self.dispatcher.service(self.pools.get(&id)?.own)
    }
}

impl From<parm_dispatcher::Condition> for Condition {
    fn from(of: parm_dispatcher::Condition) -> Self {
        use parm_dispatcher::Condition as Of;
        match of {
            Of::Well => Self::Well,
            Of::Slow(times) => Self::Slow(times),
            Of::Silent { oldest, usual } => Self::Silent { oldest, usual },
            Of::Failing => Self::Failing,
            Of::Unreachable => Self::Unreachable,
            Of::Flapping(times) => Self::Flapping(times),
            Of::Wrong => Self::Wrong,
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
