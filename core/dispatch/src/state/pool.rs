//! A pool: the instances that serve one deployed model, and the work that waits for them.

use std::num::NonZeroU16;
use std::time::Duration;

use smallvec::SmallVec;

use crate::api::{
    Accept, Cost, Counters, InForce, InOutage, Payer, Placement, PolicyKind, PoolId, PoolSettings, ShapeId,
    Time, times,
};
use crate::measure::alone::Alone;
use crate::measure::arrivals::Arrivals;
use crate::measure::bound::Bound;
use crate::measure::budget::Budget;
use crate::measure::curve::Curve;
use crate::measure::deadlines::Deadlines;
use crate::measure::doubt::Tally;
use crate::measure::load::Load;
use crate::measure::pace::Pace;
use crate::measure::padding::Padding;
use crate::measure::quantile::Quantiles;
use crate::policy::{Policy, build};
use crate::state::extra::{ExtraLine, Extras};
use crate::state::idle::Idle;
use crate::state::keys::GroupKey;
use crate::state::queue::{Queue, Readiness};
use crate::state::reservations::Asking;
use crate::state::stand_ins::StandIns;

/// A pool.
pub(crate) struct Pool {
    pub(crate) id: PoolId,
    pub(crate) settings: PoolSettings,
    pub(crate) in_force: InForce,
    pub(crate) policy: Box<dyn Policy>,
    /// Queries that were never tried.
    pub(crate) queue: Queue,
    /// Retries and hedges. They are older than the queue and go before it.
    pub(crate) urgent: Extras,
    /// Optional work, which uses idle time only.
    pub(crate) spare: Extras,
    /// Instances with room for queries.
    pub(crate) idle: Idle,
    /// Instances with room for parities and backups.
    pub(crate) redundancy_idle: Idle,
    /// Instances with room that hold the stand-in and not the deployed model.
    pub(crate) apart_idle: Idle,
    /// The number of usable ones.
    pub(crate) apart: u32,
    /// The groups that take members, one for each shape.
    pub(crate) open: SmallVec<[(ShapeId, GroupKey); 2]>,
    /// Groups whose outputs are kept to be compared.
    pub(crate) watched: u32,
    /// Compared answers of all instances.
    pub(crate) answers: Tally,
    /// Slots of the usable instances that hold the deployed model.
    pub(crate) slots: u32,
    /// The number of these instances.
    pub(crate) usable: u32,
    /// Their number if none was ejected.
    pub(crate) members: u32,
    /// Usable instances that run only parities and backups.
    pub(crate) kept: u32,
    /// Instances that only slowness keeps out of service.
    pub(crate) slow: u32,
    /// Instances that must stay idle in addition to the one on which spare work starts.
    pub(crate) headroom: u32,
    /// The time since when no instance is usable.
    pub(crate) deserted_since: Option<Time>,
    /// The time since when stand-ins answer all queries that accept it, because no instance with the deployed model
    /// answers.
    pub(crate) outage_since: Option<Time>,
    /// The time of the last prediction.
    pub(crate) predicted_at: Time,
    /// The timer that looks for an outage; there is one at a time.
    pub(crate) outage_timer: Option<Time>,
    /// Times of the deployed model's jobs from start to completion.
    pub(crate) service: Quantiles,
    /// Times of queries from arrival to prediction.
    pub(crate) response: Quantiles,
    /// Started jobs.
    pub(crate) load: Load<50>,
    /// Arrived queries.
    pub(crate) arrivals: Arrivals,
    /// The time that the latest queries had until their deadlines.
    pub(crate) deadlines: Deadlines,
    /// Times of batches by their number of rows.
    pub(crate) curve: Curve,
    /// Times of batches by their padded size, if its queries may be padded. The curve is then that of the usual size.
    pub(crate) padding: Option<Box<Padding>>,
    /// The time at which a batch may start.
    pub(crate) readiness: Readiness,
    /// The mean number of rows of its latest batches.
    pub(crate) usual_rows: f32,
    /// Frontends that share its instances, this one included.
    pub(crate) sharers: u16,
    /// Expected times of the deployed model's jobs.
    pub(crate) pace: Pace,
    /// The timer at which queries stop waiting for a faster instance; there is one at a time.
    pub(crate) faster_timer: Option<Time>,
    /// The time before which no slow instance is explored.
    pub(crate) explore_at: Time,
    /// Its stand-ins, if the policy is or was `stand-in`.
    pub(crate) stand_ins: Option<Box<StandIns>>,
    /// The latest answers of the previous version, until this version has stand-ins.
    inherited: Option<Bound>,
    /// The cost of its stand-in as a worker measured it.
    pub(crate) reported_cost: Option<Cost>,
    /// Its reservations at instances that give tokens.
    pub(crate) asking: Asking,
    /// A timer limits its wait for neighbours.
    pub(crate) bears_neighbours: bool,
    /// Times of batches that had an instance to themselves.
    pub(crate) alone: Alone,
    pub(crate) hedges: Budget,
    pub(crate) retries: Budget,
    /// The batch timer; there is one at a time.
    pub(crate) batch_timer: Option<Time>,
    /// The timer for the lack of instances; there is one at a time.
    pub(crate) no_instance_timer: Option<Time>,
    /// Running jobs.
    pub(crate) running: u32,
    /// Queries without an answer.
    pub(crate) unanswered: u32,
    /// The model is unloaded: the pool is removed with its last job.
    pub(crate) removed: bool,
    /// Only queries have named it: its model was unloaded, or is not set up yet. It is removed with them.
    pub(crate) provisional: bool,
    pub(crate) counters: Counters,
    /// The number of groups encoded since the last reading, by size.
    pub(crate) made: SmallVec<[(u8, u32); 2]>,
}

impl Pool {
    pub(crate) fn new(id: PoolId, settings: PoolSettings, now: Time) -> Self {
        let in_force = InForce::as_wished(&settings);
        let (hedges, retries) = (Budget::new(&settings.hedge.budget), Budget::new(&settings.retry));
        let stands_in = in_force.policy == PolicyKind::StandIn;
        Self {
            stand_ins: stands_in.then(|| Box::new(StandIns::new(&settings.stand_in))),
            inherited: None,
            reported_cost: None,
            id,
            policy: build(&settings, &in_force),
            queue: Queue::default(),
            urgent: Extras::new(),
            spare: Extras::new(),
            idle: Idle::default(),
            redundancy_idle: Idle::default(),
            apart_idle: Idle::default(),
            apart: 0,
            open: SmallVec::new(),
            watched: 0,
            answers: Tally::default(),
            slots: 0,
            usable: 0,
            members: 0,
            kept: 0,
            slow: 0,
            headroom: 0,
            deserted_since: Some(now),
            outage_since: None,
            predicted_at: now,
            outage_timer: None,
            service: Quantiles::new(late_quantile(&settings)),
            response: Quantiles::new(usual_quantile(&settings, in_force.policy)),
            load: Load::default(),
            arrivals: Arrivals::default(),
            deadlines: Deadlines::default(),
            curve: Curve::default(),
            padding: None,
            readiness: first_readiness(&in_force),
            usual_rows: 1.0,
            sharers: 1,
            pace: Pace::default(),
            faster_timer: None,
            explore_at: now,
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
            made: SmallVec::new(),
            settings,
            in_force,
        }
    }

    /// Changes the settings. Work under way is not affected.
    pub(crate) fn change(&mut self, settings: PoolSettings, in_force: InForce) {
        self.policy = build(&settings, &in_force);
        self.service.set_high(late_quantile(&settings));
        self.response.set_high(usual_quantile(&settings, in_force.policy));
        self.hedges.change(&settings.hedge.budget);
        self.retries.change(&settings.retry);
        match &mut self.stand_ins {
            Some(stand_ins) => {
                let is_replaced = stand_ins.take_files(&in_force.stand_in_files);
                if is_replaced || self.settings.stand_in.model != settings.stand_in.model {
                    stand_ins.forget_model(&settings.stand_in);
                    // Workers may have told it before these settings.
                    self.reported_cost.into_iter().for_each(|cost| stand_ins.tell_cost(cost));
                }
                stand_ins.change(&settings.stand_in);
            }
            None if in_force.policy == PolicyKind::StandIn => {
                let mut stand_ins = Box::new(StandIns::new(&settings.stand_in));
                stand_ins.take_files(&in_force.stand_in_files);
                self.reported_cost.into_iter().for_each(|cost| stand_ins.tell_cost(cost));
                if let Some(bound) = self.inherited.take() {
                    stand_ins.bound = bound;
                    stand_ins.bound.change(&settings.stand_in);
                }
                self.stand_ins = Some(stand_ins);
            }
            None => {}
        }
        self.readiness = first_readiness(&in_force);
        self.settings = settings;
        self.in_force = in_force;
        self.alone.allow(self.ahead());
    }
}

impl Pool {
    /// The latest answers for the bound on approximate ones.
    pub(crate) fn answered(&self) -> Option<Bound> {
        let own = self.stand_ins.as_ref().map(|stand_ins| &stand_ins.bound);
        own.or(self.inherited.as_ref()).cloned()
    }

    /// Takes over the answers of a previous version.
    pub(crate) fn inherit(&mut self, mut answered: Bound) {
        match &mut self.stand_ins {
            Some(stand_ins) => {
                answered.change(&self.settings.stand_in);
                stand_ins.bound = answered;
            }
            None => self.inherited = Some(answered),
        }
    }

    /// Notes an answer of this version or of another one.
    pub(crate) fn note_answer(&mut self, payer: Payer, accept: Accept, approximate: bool) {
        let own = self.stand_ins.as_mut().map(|stand_ins| &mut stand_ins.bound);
        if let Some(bound) = own.or(self.inherited.as_mut()) {
            bound.note(payer, accept, approximate);
        }
    }

    /// Whether queries go where they are expected to end first, and not to the next instance in turn.
    pub(crate) fn places_by_speed(&self) -> bool {
        self.settings.placement == Placement::Speed && !self.policy.takes_turns() && self.pace.is_uneven()
    }

    /// Whether anything waits for an instance.
    pub(crate) fn has_work(&self) -> bool {
        let wanted = |stand_ins: &StandIns| stand_ins.has_early() || !stand_ins.late.is_empty();
        self.queue.waiting() > 0
            || !self.urgent.is_empty()
            || !self.spare.is_empty()
            || self.stand_ins.as_deref().is_some_and(wanted)
    }

    /// Whether more than a batch per slot waits. Then each query waits for about a service time and every instance
    /// counts; jobs are late because of the queue, and duplicates would make it longer.
    pub(crate) fn backlogged(&self) -> bool {
        self.batches_waiting() > f64::from(self.slots)
    }

    /// Whether the queue is so long that a duplicate would harm more queries than it helps.
    pub(crate) fn crowded(&self) -> bool {
        self.batches_waiting() > f64::from(self.slots) * self.policy.hedges_beside()
    }

    /// Batches of the usual size among the waiting queries.
    pub(crate) fn batches_waiting(&self) -> f64 {
        f64::from(self.queue.waiting()) / f64::from(self.usual_rows)
    }

    /// Whether spare work may start: enough instances stay idle for queries that arrive while it runs.
    pub(crate) fn has_headroom(&self) -> bool {
        self.headroom == 0 || self.idle.more_than(self.headroom)
    }

    /// The share of the slots that queries keep busy.
    pub(crate) fn utilisation(&self, now: Time) -> f64 {
        self.busy(now) / f64::from(self.slots.max(1))
    }

    /// The slots that queries keep busy.
    pub(crate) fn busy(&self, now: Time) -> f64 {
        let Some(taken) = self.taken() else { return 0.0 };
        self.load.busy(now, taken)
    }

    /// The time for which a job keeps a slot busy, without its wait behind other jobs.
    pub(crate) fn taken(&self) -> Option<Duration> {
        self.alone.median().or(self.service.reading().map(|recent| recent.median))
    }
}

/// The readiness of batches of a fixed size, which does not change; of others until the load is known.
fn first_readiness(in_force: &InForce) -> Readiness {
    let fixed = |size: NonZeroU16| Readiness {
        rows: size.min(in_force.max_rows).get(),
        wait: in_force.batch.max_delay,
    };
    in_force.batch.max_size.fixed().map_or(Readiness::AT_ONCE, fixed)
}

/// The high quantile of response times: under `stand-in`, all but the share that may be approximate.
fn usual_quantile(settings: &PoolSettings, in_force: PolicyKind) -> f64 {
    match in_force {
        PolicyKind::StandIn => 1.0 - settings.stand_in.bound.get(),
        _ => late_quantile(settings),
    }
}

/// The quantile above which a job is late. The budget could not hedge more jobs anyway.
fn late_quantile(settings: &PoolSettings) -> f64 {
    1.0 - settings.hedge.budget.ratio.get()
}

/// A batch is queued ahead only at an instance that completed one within this many usual times.
const LIVELY: f64 = 1.5;

impl Pool {
    pub(crate) fn extras(&mut self, class: ExtraLine) -> &mut Extras {
        match class {
            ExtraLine::Urgent => &mut self.urgent,
            ExtraLine::Spare => &mut self.spare,
        }
    }

    /// The work that may be queued ahead under this policy.
    pub(crate) fn ahead(&self) -> Duration {
        if self.policy.gives_ahead() { self.settings.ahead } else { Duration::ZERO }
    }

    /// The longest pause of an instance at which batches are queued ahead.
    pub(crate) fn longest_pause(&self) -> Option<Duration> {
        self.alone.median().map(|median| times(median, LIVELY))
    }

    /// The batches that this pool lets an instance hold for each slot.
    pub(crate) fn allowed_ahead(&self) -> u16 {
        self.alone.allowed
    }

    /// The median time of the deployed model.
    pub(crate) fn usual_service(&self) -> Option<Duration> {
        Some(self.service.reading()?.median)
    }

    /// The cost of a late query's stand-in, as far as known.
    pub(crate) fn stand_in_cost(&self) -> Cost {
        self.stand_in_cost_at(self.apart > 0)
    }

    /// The cost of a stand-in on instances with the deployed model, or on those apart.
    pub(crate) fn stand_in_cost_at(&self, apart: bool) -> Cost {
        let assumed = self.settings.stand_in.cost.get();
        let costs = |own: &StandIns| {
            let query = own.queries.reading().map(|reading| reading.median).or(self.usual_service());
            if apart { &own.costs_apart } else { &own.costs }.known(query, assumed)
        };
        self.stand_ins.as_deref().map_or(Cost::linear(assumed), costs)
    }

    /// Whether its stand-ins answer all queries while the deployed model does not.
    pub(crate) fn bridges_outages(&self) -> bool {
        self.apart > 0 && self.wants_bridges()
    }

    /// The same, if any instance apart from the deployed model takes them.
    pub(crate) fn wants_bridges(&self) -> bool {
        let wanted = self.settings.stand_in.in_outage == InOutage::Answer;
        let gives = self.stand_ins.as_deref().is_some_and(|own| !own.withheld);
        wanted && gives && self.in_force.policy == PolicyKind::StandIn
    }
}
