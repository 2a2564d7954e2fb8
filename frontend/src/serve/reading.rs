//! What the frontend reads from the dispatcher about models, instances and shares, for metrics, the console, the admin API
//! and discovery. The driver makes these readings; all others read only the types of this file.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parm_dispatcher::CodingCounters;
use parm_shares::Account;
use serde::Serialize;

use super::agreement::Counts;
use super::driver::Driver;
use super::lines::Lines;
use super::state::State;

pub(crate) use parm_dispatcher::{Condition, Payer, QueryKey as QueryId, Time};

pub(crate) use super::instance::InstanceId;
pub(crate) use super::pool::PoolId;

/// How a model is: as the dispatcher says, and what is known beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ModelReading {
    pub(crate) own: parm_dispatcher::ModelReading,
    /// What happened so far, also to its parities and its stand-in.
    pub(crate) counters: Counters,
    /// The number of its codes.
    pub(crate) codes: usize,
    /// The share of the latest predictions that their stand-ins agreed with.
    pub(crate) agreement: Option<f64>,
    /// The agreement is below the floor: clients receive no stand-in's answer.
    pub(crate) withheld: bool,
}

impl ModelReading {
    /// The share of the usable slots that queries keep busy.
    pub(crate) fn utilisation(&self) -> f64 {
        f64::from(self.busy) / f64::from(self.slots.max(1))
    }
}

impl Deref for ModelReading {
    type Target = parm_dispatcher::ModelReading;

    fn deref(&self) -> &Self::Target {
        &self.own
    }
}

/// The coding groups of a model, as they are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct GroupsReading {
    /// Groups that take members: how many they have room for, how many they have, and the age of the first one in microseconds.
    open: Vec<(u8, u8, u64)>,
    /// The number of groups encoded since the last reading, by size.
    made: Vec<(u8, u32)>,
}

/// How an instance is: as the dispatcher says, and what is known beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InstanceReading {
    own: parm_dispatcher::InstanceReading,
    /// Its compared answers, and how many of them agreed. Old ones fade.
    pub(crate) compared: Option<[f64; 2]>,
    /// The age of the oldest job that it holds.
    pub(crate) oldest: Option<Duration>,
}

impl Deref for InstanceReading {
    type Target = parm_dispatcher::InstanceReading;

    fn deref(&self) -> &Self::Target {
        &self.own
    }
}

/// The counts of a model, each with the one that it is made of.
macro_rules! counters {
    ($of:ident: $($name:ident = $value:expr;)*) => {
        /// What happened to a model's queries and jobs since it was set up.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Counters {
            $(pub(crate) $name: u64,)*
        }

        impl Counters {
            /// Their names.
            pub(crate) const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Their values, in the order of the names.
            pub(crate) fn values(&self) -> Vec<u64> {
                vec![$(self.$name),*]
            }

            fn of($of: &Parts) -> Self {
                Self { $($name: $value,)* }
            }
        }
    };
}

/// What the counts of a model are made of.
struct Parts {
    own: parm_dispatcher::Counters,
    coded: CodingCounters,
    /// Groups that could not be encoded, and predictions that could not be decoded.
    failures: [u64; 2],
    stand_in: Counts,
    /// Runs of the model, of its parities and of its stand-in, and those of them that nobody needed any more.
    jobs: [u64; 2],
    /// Answers of its backup model, and of its stand-in.
    by_helper: [u64; 2],
    outages: u64,
}

counters! { of:
    arrived = of.own.submitted;
    cancelled = of.own.cancelled;
    given_up = of.own.overloaded;
    jobs = of.jobs[0];
    batches = of.own.batches;
    batch_rows = of.own.first;
    dropped = of.jobs[1];
    hedges = of.own.hedged;
    hedges_refused = of.own.hedges_refused;
    hedges_won = of.own.hedges_won;
    explored = of.own.explored;
    groups = of.coded.groups;
    groups_partial = of.coded.groups_partial;
    groups_dissolved = of.coded.groups_dissolved;
    parities = of.coded.parities;
    parities_unsent = of.coded.parities_unsent;
    parities_late = of.coded.parities_late;
    reconstructions = of.coded.reconstructions;
    reconstructions_served = of.coded.reconstructions_served;
    reconstructions_unsure = of.coded.reconstructions_unsure;
    backups_served = of.by_helper[0];
    stand_ins_late = of.own.stood_in;
    stand_ins_served = of.by_helper[1];
    outages = of.outages;
    stand_ins_outage = of.own.in_outage;
    stand_ins_unsure = of.stand_in.unsure;
    stand_ins_over_bound = of.own.over_bound;
    stand_ins_wasted = of.stand_in.answered.saturating_sub(of.own.by_stand_in);
    retries = of.own.retried;
    retries_refused = of.own.retries_refused;
    compared = of.stand_in.compared;
    disagreed = of.stand_in.disagreed;
    suspected = of.stand_in.suspected;
    ejected_wrong = of.stand_in.ejected;
    ejected_failing = of.own.out_failing;
    ejected_silent = of.own.out_silent;
    ejections_refused = of.own.kept;
    encode_failures = of.failures[0];
    decode_failures = of.failures[1];
}

impl State {
    /// How a model is.
    pub(super) fn reading(&self, now: Time, id: PoolId) -> Option<ModelReading> {
        let lines = self.pools.get(&id)?;
        let own = self.dispatcher.reading(now, lines.own)?;
        let known = lines.stand_in.as_ref();
        let (keys, codes) = (lines.keys(), lines.pool.codes());
        let others = [keys.helper, keys.parity].into_iter().flatten();
        let mut jobs = [lines.past_jobs[0] + own.counters.jobs, lines.past_jobs[1] + own.counters.stopped];
        for other in others.filter_map(|key| self.dispatcher.counters(key)) {
            jobs = [jobs[0] + other.jobs, jobs[1] + other.stopped];
        }
        let by_helper = own.counters.by_stand_in;
        let coded = self.coded.get(&id);
        let parts = Parts {
            own: own.counters,
            coded: coded.map(|coded| coded.coder.counters()).unwrap_or_default(),
            failures: coded.map(|coded| coded.failures).unwrap_or_default(),
            stand_in: known.map(|known| known.counts).unwrap_or_default(),
            jobs,
            by_helper: if codes.backup.is_some() { [by_helper, 0] } else { [0, by_helper] },
            outages: lines.pool.outages.load(Ordering::Relaxed),
        };
        Some(ModelReading {
            own,
            counters: Counters::of(&parts),
            codes: codes.len(),
            agreement: known.and_then(|known| known.agreement.share()),
            withheld: known.is_some_and(|known| known.agreement.is_withheld()),
        })
    }

    /// The coding groups of a model.
    pub(super) fn groups(&mut self, now: Time, id: PoolId) -> Option<GroupsReading> {
        let is_coded = self.pools.get(&id)?.parity.is_some();
        self.coded.get_mut(&id).filter(|_| is_coded).map(|coded| {
            let age = |since: Time| now.since(since).as_micros() as u64;
            let open = coded.coder.open();
            let open = open.map(|own| (own.size as u8, own.members as u8, age(own.since))).collect();
            let made = coded.coder.take_made();
            GroupsReading { open, made: made.into_iter().map(|(k, count)| (k as u8, count)).collect() }
        })
    }

    /// How an instance is.
    pub(super) fn instance(&self, now: Time, id: InstanceId) -> Option<InstanceReading> {
        let key = *self.keys.get(&id)?;
        let own = self.dispatcher.instance(now, key)?;
        let jobs = self.running.values();
        let oldest = jobs.filter(|job| job.at == key).map(|job| job.started).min();
        let known = self.pools.values().filter_map(|lines| lines.stand_in.as_ref());
        let compared = known.map(|known| known.doubts.of(key));
        let compared = compared.reduce(|sum, own| [sum[0] + own[0], sum[1] + own[1]]);
        let compared = compared.filter(|[compared, _]| *compared > 0.0);
        Some(InstanceReading { own, compared, oldest: oldest.map(|since| now.since(since)) })
    }

    /// The accounts of all payers that used something, each with the name of its share or of its model.
    pub(super) fn accounts(&self, driver: &Driver) -> Vec<(Payer, [String; 2], Account)> {
        let named = |(payer, account): (Payer, Account)| {
            let names = match payer {
                Payer::Share(share) => [driver.shares.name(share.0).to_string(), String::new()],
                Payer::Model(_) if account.used == 0.0 && account.waiting == 0 => return None,
                Payer::Model(model) => {
                    let Lines { pool, .. } = self.pools.get(self.models.get(&model)?)?;
                    [String::new(), pool.model.name.clone()]
                }
            };
            Some((payer, names, account))
        };
        self.dispatcher.accounts().filter_map(named).collect()
    }

    /// The times of a model's runs.
    pub(super) fn service(&self, id: PoolId) -> Option<[Duration; 2]> {
        self.dispatcher.service(self.pools.get(&id)?.own)
    }
}
