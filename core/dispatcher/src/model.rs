//! A model: its settings, its estimates, the queries that wait for it, and its instances with room.

use std::collections::VecDeque;
use std::time::Duration;

use slotmap::new_key_type;

use crate::Time;
use crate::batch::Limit;
use crate::bound::BoundsKey;
use crate::budget::{Budget, BudgetSettings};
use crate::counters::Counters;
use crate::estimate::{Rate, Times};
use crate::health::HealthSettings;
use crate::instance::InstanceKey;
use crate::policy::{Placement, Policy};
use crate::query::QueryKey;
use crate::turns::Lanes;

new_key_type! {
    /// The name of a model. A stand-in is a model of its own.
    pub struct ModelKey;
}

/// The settings of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelSettings {
    /// How its queries are treated.
    pub policy: Policy,
    /// The cheaper model that may answer for it.
    pub stand_in: Option<ModelKey>,
    /// Attempts of a query on the model itself, the first included.
    pub max_attempts: u8,
    /// Queries of each payer that may wait at a time. The last of the least urgent makes room for a more urgent one.
    pub queue_limit: u32,
    /// Rows of a job at most; 1 for servers that take one request at a time, or that make batches themselves.
    pub max_rows: u32,
    /// How long a query waits while no instance runs the model, or each that does is held.
    pub instance_wait: Duration,
    /// Copies of late queries.
    pub hedges: BudgetSettings,
    /// Attempts after failures.
    pub retries: BudgetSettings,
    /// No copy is sent earlier: at a model of microseconds it would cost more than it saves.
    pub least_hedge_delay: Duration,
    /// When instances are taken out of service.
    pub health: HealthSettings,
}

impl ModelSettings {
    /// Whether a query at which the model failed runs at another instance, which shows who is at fault.
    pub(crate) fn tries_again(&self) -> bool {
        self.policy.repeats && self.max_attempts > 1
    }
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            policy: Policy::HEDGE,
            stand_in: None,
            max_attempts: 3,
            queue_limit: 10_000,
            max_rows: 1,
            instance_wait: Duration::from_secs(1),
            hedges: BudgetSettings { ratio: 0.1, burst: 10 },
            retries: BudgetSettings { ratio: 0.2, burst: 100 },
            least_hedge_delay: Duration::from_millis(1),
            health: HealthSettings::default(),
        }
    }
}

/// While no run has ended, a query gets a copy at this age, and the next query at twice the age.
pub(crate) const COLD_HEDGE: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) settings: ModelSettings,
    pub(crate) times: Times,
    pub(crate) arrivals: Rate,
    pub(crate) hedges: Budget,
    pub(crate) retries: Budget,
    pub(crate) bounds: BoundsKey,
    /// When it last gave a prediction.
    pub(crate) answered: Time,
    /// When a query last started that could have had an exploring copy.
    pub(crate) started: Time,
    pub(crate) batches: Limit,
    /// The rows of the last batch that was considered, if all had time.
    pub(crate) batch: u32,
    pub(crate) line: Line,
    pub(crate) free: Free,
    pub(crate) instances: Vec<InstanceKey>,
    /// Since when it has no instance that is not held.
    pub(crate) deserted: Option<Time>,
    /// Its queries and jobs.
    pub(crate) uses: u32,
    pub(crate) is_removed: bool,
    /// Slots of the instances in service, and how many usual instances they are worth.
    pub(crate) slots: u32,
    pub(crate) capacity: f64,
    /// The lowest [`Served::slower`](crate::instance::Served::slower) of an instance in service.
    pub(crate) fastest: f32,
    /// How much slower than that one an instance may be and count as equally fast.
    pub(crate) same: f32,
    /// Runs that ended since all speeds were compared.
    pub(crate) compared: u32,
    /// Copies that were sent before any run had ended.
    pub(crate) cold_copies: u8,
    /// Whether the matcher should look at its line.
    pub(crate) dirty: bool,
    pub(crate) counters: Counters,
}

/// The wanted attempts of a model. Entries of attempts that are not wanted any more are skipped when they are found.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Stand-ins of late queries: they need least, and their queries have waited longest.
    pub(crate) stand_ins: VecDeque<QueryKey>,
    /// Retries and copies.
    pub(crate) again: VecDeque<QueryKey>,
    /// Queries without an attempt at the model's own answer: new ones, rows of a failed batch that run alone, and those whose stand-in
    /// did not answer.
    pub(crate) first: Lanes,
    /// Queries that use idle instances only.
    pub(crate) background: VecDeque<QueryKey>,
    /// The true number of wanted attempts in `first`, and in `background`.
    pub(crate) waiting: u32,
    pub(crate) background_waiting: u32,
    /// Attempts that left before they started since their entries were removed.
    left: usize,
}

/// The instances that may have room, those that are free the longest first. Entries are checked when they are taken.
#[derive(Debug, Default)]
pub(crate) struct Free {
    pub(crate) fast: VecDeque<InstanceKey>,
    /// By speed, the fastest first.
    pub(crate) slow: Vec<(f32, InstanceKey)>,
    /// Instances out of service, with or without room.
    pub(crate) out: Vec<InstanceKey>,
}

impl Free {
    /// Whether no instance could start a job now.
    pub(crate) fn is_empty(&self) -> bool {
        self.fast.is_empty() && self.slow.is_empty() && self.out.is_empty()
    }
}

/// Fewer attempts that left are not worth looking for.
const SWEPT: usize = 64;

impl Line {
    /// An attempt leaves before it starts. Its entry is removed when it is found, or with many others: behind an attempt that waits
    /// for long, entries would pile up.
    pub(crate) fn leave(&mut self, waits: impl Fn(QueryKey) -> bool) {
        self.left += 1;
        let listed: usize = self.queues().map(|queue| queue.len()).sum();
        if self.left >= SWEPT.max(listed / 2) {
            self.left = 0;
            self.queues().for_each(|queue| queue.retain(|key| waits(*key)));
        }
    }

    fn queues(&mut self) -> impl Iterator<Item = &mut VecDeque<QueryKey>> {
        let lanes = self.first.0.iter_mut().map(|lane| &mut lane.queue);
        lanes.chain([&mut self.stand_ins, &mut self.again, &mut self.background])
    }

    /// Whether nothing is listed, wanted or not.
    pub(crate) fn is_empty(&self) -> bool {
        self.stand_ins.is_empty()
            && self.again.is_empty()
            && self.first.is_empty()
            && self.background.is_empty()
    }
}

/// Instances within this logarithm of the fastest one count as equally fast.
pub(crate) const SAME: f32 = 0.05;

/// The same, that of 1.5, where the jobs that an instance runs best at a time are learned. The fastest of such servers would have
/// room for nearly every query, and the others, a tenth slower by chance, would get too few to show whether they work.
pub(crate) const ALIKE: f32 = 0.405;

impl Model {
    pub(crate) fn new(settings: ModelSettings, bounds: BoundsKey) -> Self {
        Self {
            settings,
            hedges: Budget::new(settings.hedges),
            retries: Budget::new(settings.retries),
            bounds,
            batch: 1,
            deserted: Some(Time::ZERO),
            same: SAME,
            ..Self::default()
        }
    }

    /// Whether an instance of this speed counts as one of the fastest.
    pub(crate) fn is_fast(&self, slower: f32) -> bool {
        slower <= self.fastest + self.same
    }

    /// Lists a free instance.
    pub(crate) fn list(&mut self, key: InstanceKey, slower: f32) {
        if self.settings.policy.placement == Placement::InTurn || self.is_fast(slower) {
            self.free.fast.push_back(key);
        } else {
            let at = self.free.slow.partition_point(|(other, _)| *other <= slower);
            self.free.slow.insert(at, (slower, key));
        }
    }

    /// Whether more queries wait than the instances run at a time.
    pub(crate) fn is_backlogged(&self) -> bool {
        self.line.waiting > self.slots.saturating_mul(self.batch)
    }
}
