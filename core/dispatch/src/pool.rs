//! A pool: the instances that serve one deployed model, and the work that waits for them.

use std::time::Duration;

use smallvec::SmallVec;

use super::ahead::Alone;
use super::arena::Key;
use super::bound::Bound;
use super::budget::Budget;
use super::chronicle::Chronicle;
use super::counters::Counters;
use super::doubt::{Tally, Test};
use super::extra::Extras;
use super::group::Group;
use super::idle::Idle;
use super::load::Load;
use super::policy::{self, Policy};
use super::quantile::Quantiles;
use super::queue::Queue;
use super::reservations::Asking;
use super::stand_ins::StandIns;
use super::{Cost, InForce, PolicyKind, PoolId, PoolSettings, ShapeId, Time};

/// A pool and everything that is known about it.
pub(super) struct Pool {
    pub(super) id: PoolId,
    pub(super) settings: PoolSettings,
    pub(super) in_force: InForce,
    pub(super) policy: Box<dyn Policy>,
    /// Queries that were never tried.
    pub(super) queue: Queue,
    /// Retries and hedges: older than anything in the queue, so they go first.
    pub(super) urgent: Extras,
    /// Work that may help and need not be done: it gets what the rest leaves over.
    pub(super) spare: Extras,
    /// Instances with room for queries.
    pub(super) idle: Idle,
    /// Instances with room for parities and backups.
    pub(super) redundancy_idle: Idle,
    /// The groups that take members, one for each shape.
    pub(super) open: SmallVec<[(ShapeId, Key<Group>); 2]>,
    /// Groups whose outputs are kept to be compared.
    pub(super) watched: u32,
    /// What comparisons said, of all instances.
    pub(super) answers: Tally,
    /// Slots of the usable instances that hold the deployed model.
    pub(super) slots: u32,
    /// How many such instances there are.
    pub(super) usable: u32,
    /// How many there would be if none were ejected.
    pub(super) members: u32,
    /// Instances that were ejected for being slow, and would be usable.
    pub(super) slow: u32,
    /// Instances that must be idle beside the one on which spare work starts.
    pub(super) headroom: u32,
    /// Since when there are none.
    pub(super) deserted_since: Option<Time>,
    /// From start to completion of jobs of the deployed model.
    pub(super) service: Quantiles,
    /// From arrival to prediction of queries.
    pub(super) response: Quantiles,
    pub(super) load: Load,
    /// Under `stand-in`, or where it was the policy before.
    pub(super) stand_ins: Option<Box<StandIns>>,
    /// The latest answers of the version before this one, until this one has stand-ins.
    inherited: Option<Bound>,
    /// What a worker measured of the stand-in.
    pub(super) told_cost: Option<Cost>,
    /// Its reservations at instances that give tokens.
    pub(super) asking: Asking,
    /// A timer is set after which it waits for neighbours no longer.
    pub(super) bears_neighbours: bool,
    /// What batches take that have an instance to themselves.
    pub(super) alone: Alone,
    pub(super) hedges: Budget,
    pub(super) retries: Budget,
    /// The batch timer that is set, so that there is one at a time.
    pub(super) batch_timer: Option<Time>,
    /// Likewise for the lack of instances.
    pub(super) no_instance_timer: Option<Time>,
    /// Jobs that run.
    pub(super) running: u32,
    /// Queries without an answer.
    pub(super) unanswered: u32,
    /// The model is unloaded: the pool goes with its last job.
    pub(super) removed: bool,
    /// Only queries have named it: a model that was unloaded as they came, or is yet to be set up. It goes with them.
    pub(super) provisional: bool,
    pub(super) counters: Counters,
    pub(super) chronicle: Chronicle,
}

impl Pool {
    pub(super) fn new(id: PoolId, settings: PoolSettings, now: Time) -> Self {
        let in_force = InForce::as_wished(&settings);
        let (hedges, retries) = (Budget::new(&settings.hedge.budget), Budget::new(&settings.retry));
        let stands_in = in_force.policy == PolicyKind::StandIn;
        Self {
            stand_ins: stands_in.then(|| Box::new(StandIns::new(&settings.stand_in))),
            inherited: None,
            told_cost: None,
            id,
            policy: policy::build(&settings, &in_force),
            queue: Queue::default(),
            urgent: Extras::new(),
            spare: Extras::new(),
            idle: Idle::default(),
            redundancy_idle: Idle::default(),
            open: SmallVec::new(),
            watched: 0,
            answers: Tally::default(),
            slots: 0,
            usable: 0,
            members: 0,
            slow: 0,
            headroom: 0,
            deserted_since: Some(now),
            service: Quantiles::new(late_quantile(&settings)),
            response: Quantiles::new(usual_quantile(&settings, in_force.policy)),
            load: Load::default(),
            asking: Asking::default(),
            bears_neighbours: false,
            alone: Alone::default(),
            hedges,
            retries,
            batch_timer: None,
            no_instance_timer: None,
            running: 0,
            unanswered: 0,
            removed: false,
            provisional: true,
            counters: Counters::default(),
            chronicle: Chronicle::default(),
            settings,
            in_force,
        }
    }

    /// Other settings from now on; work under way stays.
    pub(super) fn change(&mut self, settings: PoolSettings, in_force: InForce) {
        self.policy = policy::build(&settings, &in_force);
        self.service.set_high(late_quantile(&settings));
        self.response.set_high(usual_quantile(&settings, in_force.policy));
        self.hedges.change(&settings.hedge.budget);
        self.retries.change(&settings.retry);
        match &mut self.stand_ins {
            Some(stand_ins) => stand_ins.change(&settings.stand_in),
            None if in_force.policy == PolicyKind::StandIn => {
                let mut stand_ins = Box::new(StandIns::new(&settings.stand_in));
                self.told_cost.into_iter().for_each(|cost| stand_ins.costs.tell(cost));
                if let Some(bound) = self.inherited.take() {
                    stand_ins.bound = bound;
                    stand_ins.bound.change(&settings.stand_in);
                }
                self.stand_ins = Some(stand_ins);
            }
            None => {}
        }
        self.settings = settings;
        self.in_force = in_force;
        self.alone.allow(self.ahead());
    }
}

impl Pool {
    /// The latest answers that count for the bound on approximate ones.
    pub(super) fn answered(&self) -> Option<Bound> {
        let own = self.stand_ins.as_ref().map(|stand_ins| &stand_ins.bound);
        own.or(self.inherited.as_ref()).cloned()
    }

    /// Counts these answers as its own.
    pub(super) fn inherit(&mut self, mut answered: Bound) {
        match &mut self.stand_ins {
            Some(stand_ins) => {
                answered.change(&self.settings.stand_in);
                stand_ins.bound = answered;
            }
            None => self.inherited = Some(answered),
        }
    }

    /// Whether anything waits for an instance.
    pub(super) fn has_work(&self) -> bool {
        let wanted = |stand_ins: &StandIns| stand_ins.has_early() || !stand_ins.late.is_empty();
        self.queue.waiting() > 0
            || !self.urgent.is_empty()
            || !self.spare.is_empty()
            || self.stand_ins.as_deref().is_some_and(wanted)
    }

    /// So much waits that everybody waits for about a service time: then every instance counts, and what is late is so
    /// because of the queue, which duplicates would make longer.
    pub(super) fn backlogged(&self) -> bool {
        self.queue.waiting() > self.slots
    }

    /// So much waits that a duplicate would harm more queries than it helps.
    pub(super) fn crowded(&self) -> bool {
        f64::from(self.queue.waiting()) > f64::from(self.slots) * self.policy.hedges_beside()
    }

    /// Whether spare work may start: some stay idle for queries that come while it runs.
    pub(super) fn has_headroom(&self) -> bool {
        self.headroom == 0 || self.idle.more_than(self.headroom)
    }

    /// The share of the slots that queries keep busy.
    pub(super) fn utilisation(&mut self, now: Time) -> f64 {
        self.busy(now) / f64::from(self.slots.max(1))
    }

    /// The slots that queries keep busy.
    pub(super) fn busy(&mut self, now: Time) -> f64 {
        let Some(taken) = self.taken() else { return 0.0 };
        self.load.busy(now, taken)
    }

    /// What a job keeps a slot busy for: without its wait at an instance that was given it ahead of time.
    pub(super) fn taken(&self) -> Option<Duration> {
        self.alone.median().or(self.service.reading().map(|recent| recent.median))
    }

    /// How instances whose answers are wrong are found, and whether they go.
    pub(super) fn doubts(&self) -> (Test, bool) {
        if self.in_force.policy == PolicyKind::StandIn {
            let settings = &self.settings.stand_in.agreement;
            let (significance, wrong_share) = (settings.significance.get(), settings.wrong_share.get());
            return (
                Test { significance, wrong_share, min_samples: settings.min_samples.get() },
                settings.eject,
            );
        }
        let settings = &self.settings.coding.detection;
        let (significance, wrong_share) = (settings.significance.get(), settings.wrong_share.get());
        (Test { significance, wrong_share, min_samples: settings.min_samples.get() }, settings.eject)
    }

    /// How long an instance whose answers are wrong stays away.
    pub(super) fn quarantine(&self) -> Duration {
        match self.in_force.policy {
            PolicyKind::StandIn => self.settings.stand_in.agreement.quarantine,
            _ => self.settings.coding.detection.quarantine,
        }
    }

    /// How long a retry waits for another instance than the one that failed it: those that work are mostly done with
    /// what they do by then.
    pub(super) fn patience(&self) -> Duration {
        self.service.reading().map_or(self.settings.retry_elsewhere, |recent| recent.high)
    }
}

/// What "usual" is beside the median: under `stand-in` all but the share that may be approximate.
fn usual_quantile(settings: &PoolSettings, in_force: PolicyKind) -> f64 {
    match in_force {
        PolicyKind::StandIn => 1.0 - settings.stand_in.bound.get(),
        _ => late_quantile(settings),
    }
}

/// Slower than this share of all jobs is late: no more can be hedged than the budget pays for anyway.
fn late_quantile(settings: &PoolSettings) -> f64 {
    1.0 - settings.hedge.budget.ratio.get()
}
