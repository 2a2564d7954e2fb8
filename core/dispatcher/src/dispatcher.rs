//! The dispatcher as its caller sees it, and its loop: an event changes facts and marks queries, each marked query is asked for
//! its next step until it waits, and the matcher brings wanted attempts and instances with room together.
//!
//! What an event changes is in `attempts` (queries and their runs), `matcher` (lines and free instances) and `learn` (what a run
//! shows about its instance). The random tests ask [`Dispatcher::check`] after each event.

use parm_grants::Ask;
use slotmap::SlotMap;
use smallvec::SmallVec;

use crate::Time;
use crate::calendar::{Calendar, Look};
use crate::condition::Condition;
use crate::counters::Counters;
use crate::instance::{InstanceKey, Job};
use crate::matcher::Urgency;
use crate::model::{COLD_HEDGE, ModelKey};
use crate::policy::{Policy, StandInPolicy};
use crate::query::{Accept, Answer, Attempt, By, Failure, JobKey, Query, QueryKey, Reject, Submission, Why};
use crate::step::{Facts, Step, step};
use crate::suits::{Books, Fit};
use crate::turns::{Payer, Terms, Turns};

/// What the caller should do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<P, O> {
    /// Run a model at an instance, and report the end with [`Dispatcher::ended`].
    Run {
        /// The name of the run.
        job: JobKey,
        /// Where.
        instance: InstanceKey,
        /// What.
        model: ModelKey,
        /// Why.
        why: Why,
        /// On what: a batch has several.
        rows: SmallVec<[Row<P>; 1]>,
    },
    /// Nobody needs a run any more. Stop it if that is possible, and report its end in any case.
    Cancel {
        /// The name of the run.
        job: JobKey,
        /// Where it runs.
        instance: InstanceKey,
        /// Why nobody needs it.
        reason: CancelReason,
    },
    /// Tell an instance what this frontend would start there.
    Ask {
        /// The instance.
        instance: InstanceKey,
        /// What.
        ask: Ask,
    },
    /// Return an unused grant to an instance.
    Return {
        /// The instance.
        instance: InstanceKey,
    },
    /// Ask an instance that is out of service whether it works, and report the answer with [`Dispatcher::probed`]: no copy of a query
    /// may show it.
    Probe {
        /// The instance.
        instance: InstanceKey,
    },
    /// Tell operators how an instance is: once when it changes, and once a minute while it is not well.
    Tell {
        /// The instance.
        instance: InstanceKey,
        /// How it is.
        condition: Condition,
    },
    /// Answer a query. Its name means nothing from now on.
    Reply {
        /// The query.
        query: QueryKey,
        /// What it was submitted with.
        payload: P,
        /// Its answer, or why it has none.
        result: Result<Answer<O>, Reject>,
    },
}

/// Why nobody needs a run any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// Its queries have their replies. If it ends all the same, its time is learned.
    Outrun,
    /// Its last query was cancelled: its client left, another row of its request failed, or a parity is not needed any more.
    Gone,
}

/// A row of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<P> {
    /// The query. For an exploring copy it is the one whose payload it borrows.
    pub query: QueryKey,
    /// What the model runs on.
    pub payload: P,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum End<O> {
    /// With an output for each of its rows, in their order. `None` is an output that cannot be used, for example of a stand-in
    /// with too little confidence.
    Answered(SmallVec<[Option<O>; 1]>),
    /// Without an answer.
    Failed(Failure),
    /// It was cancelled before it ended.
    Cancelled,
}

/// Decides what runs where. See the [crate].
#[derive(Debug)]
pub struct Dispatcher<P, O> {
    pub(crate) books: Books<P, O>,
    pub(crate) actions: Vec<Action<P, O>>,
    pub(crate) turns: Turns,
    calendar: Calendar,
    marked: Vec<QueryKey>,
    /// Queries whose next look is not on the calendar yet.
    waiting: Vec<QueryKey>,
    /// Instances that several frontends use, and where the next ask begins.
    pub(crate) sharing: usize,
    pub(crate) turn: usize,
    /// Models at which the matcher should look.
    dirty: Models,
    /// Removed models that still have queries or jobs.
    pub(crate) leaving: Vec<ModelKey>,
}

impl<P, O> Default for Dispatcher<P, O> {
    fn default() -> Self {
        Self {
            books: Books {
                models: SlotMap::with_key(),
                bounds: SlotMap::with_key(),
                instances: SlotMap::with_key(),
                queries: SlotMap::with_key(),
                jobs: SlotMap::with_key(),
            },
            calendar: Calendar::default(),
            marked: Vec::new(),
            waiting: Vec::new(),
            sharing: 0,
            turn: 0,
            dirty: Models::new(),
            leaving: Vec::new(),
            actions: Vec::new(),
            turns: Turns::default(),
        }
    }
}

impl<P: Clone, O> Dispatcher<P, O> {
    /// What happened to a model's queries so far.
    pub fn counters(&self, model: ModelKey) -> Option<Counters> {
        self.books.models.get(model).map(|model| model.counters)
    }

    /// Queries without a reply.
    pub fn open_queries(&self) -> usize {
        self.books.queries.len()
    }

    /// Runs without a reported end.
    pub fn open_jobs(&self) -> usize {
        self.books.jobs.len()
    }

    /// Takes out the actions since the last call.
    pub fn actions(&mut self) -> std::vec::Drain<'_, Action<P, O>> {
        self.actions.drain(..)
    }

    /// When to call [`tick`](Self::tick).
    pub fn next_tick(&self) -> Option<Time> {
        self.calendar.next()
    }

    /// Submits a query. At a full line it is rejected at once, or a less urgent one in its place; the reply is an action like any other.
    ///
    /// # Panics
    ///
    /// If the model is not one of this dispatcher, or no longer.
    pub fn submit(&mut self, now: Time, query: Submission<P>) -> QueryKey {
        let query = Query::new(query, now);
        let (of, background) = (query.model, query.background);
        let (payer, priority) = (query.payer, query.priority);
        if !background && !self.turns.is_sole(payer) {
            self.keep_book();
        }
        let key = self.books.queries.insert(query);
        let model = &mut self.books.models[of];
        model.uses += 1;
        if !background {
            model.counters.submitted += 1;
            model.counters.unanswered += 1;
            model.arrivals.note(now);
        }
        let line = &model.line;
        let waiting = if background { line.background_waiting } else { line.first.waiting(payer) };
        let is_full = waiting >= model.settings.queue_limit;
        self.mark(key);
        if is_full {
            let yields = if background { None } else { self.less_urgent(of, payer, priority) };
            self.reply(now, yields.unwrap_or(key), Err(Reject::QueueFull));
        }
        self.settle(now);
        key
    }

    /// The last of a payer's least urgent queries in line, if it is less urgent than this priority.
    fn less_urgent(&self, model: ModelKey, payer: Payer, priority: u8) -> Option<QueryKey> {
        let lane = self.books.models[model].line.first.less_urgent(payer, priority)?;
        lane.queue.iter().rev().copied().find(|key| self.waits(model, *key, true))
    }

    /// Forgets a query whose client is gone. Returns its payload if there was one: then there is no reply.
    pub fn cancel(&mut self, now: Time, query: QueryKey) -> Option<P> {
        let ended = self.end(query, CancelReason::Gone);
        if let Some(query) = ended.as_ref().filter(|query| !query.background) {
            let counters = &mut self.books.models[query.model].counters;
            counters.cancelled += 1;
            counters.unanswered -= 1;
        }
        self.settle(now);
        ended.map(|query| query.asked.payload)
    }

    /// Sets the terms of the configured shares, and of models whose weight is not 1.
    pub fn promise(&mut self, terms: &[(Payer, Terms)]) {
        self.keep_book();
        self.turns.promise(terms);
    }

    /// The shares and models that pay for queries, with what they use.
    pub fn accounts(&self) -> impl Iterator<Item = (Payer, parm_shares::Account)> {
        self.turns.accounts()
    }

    fn keep_book(&mut self) {
        let waits = |query: &&Query<P, O>| {
            !query.background && query.attempts.iter().any(|own| own.is_wanted() && own.why == Why::First)
        };
        self.turns.open(self.books.queries.values().filter(waits).map(|query| query.payer));
    }

    /// A run ended.
    pub fn ended(&mut self, now: Time, job: JobKey, end: End<O>) {
        let Some(of) = self.job_ends(now, job) else { return };
        self.learn(now, job, &of, &end);
        self.attempts_ended(now, job, &of, end);
        self.free(of.instance);
        self.settle(now);
    }

    /// Takes a job out of the books.
    pub(crate) fn job_ends(&mut self, now: Time, key: JobKey) -> Option<Job> {
        let job = self.books.jobs.remove(key)?;
        self.turns.end(job.payer, job.model, job.charge, now.since(job.began));
        self.books.models[job.model].uses -= 1;
        Some(job)
    }

    /// The share of a model's slots that queries of the usual size need, as they arrive now.
    pub fn load(&self, now: Time, model: ModelKey) -> f64 {
        if self.books.models.contains_key(model) { self.books.load(model, 1, now) } else { 0.0 }
    }

    /// From when on a query may get an approximate answer; `None` if it takes exact ones only.
    pub fn late_at(&self, key: QueryKey) -> Option<Time> {
        let query = self.books.queries.get(key)?;
        let policy = self.books.models[query.model].settings.policy;
        if query.accept.is_exact(&policy) {
            return None;
        }
        let (_, late) = self.usual_and_late(query, policy);
        Some(query.arrived.later(late))
    }

    /// What a query was submitted with, while it has no reply.
    pub fn payload(&self, key: QueryKey) -> Option<&P> {
        self.books.queries.get(key).map(|query| &query.payload)
    }

    /// A reconstruction of a query's answer is ready. It is given if the query is late.
    pub fn offer(&mut self, now: Time, key: QueryKey, output: O) {
        if let Some(query) = self.books.queries.get_mut(key) {
            query.offer = Some(Answer { output, by: By::Reconstruction });
            self.mark(key);
        }
        self.settle(now);
    }

    /// Looks at what is due.
    pub fn tick(&mut self, now: Time) {
        while let Some((at, look)) = self.calendar.take(now) {
            match look {
                Look::Query(key) => {
                    let Some(query) = self.books.queries.get_mut(key).filter(|query| query.look == at) else {
                        continue;
                    };
                    (query.look, query.noted) = (Time::MAX, Time::MAX);
                    // An instance that did not suit a waiting attempt may suit it now.
                    let models = query.attempts.iter().filter(|own| own.is_wanted()).map(|own| own.model);
                    let models: Models = models.collect();
                    models.into_iter().for_each(|model| self.touch(model));
                    self.mark(key);
                }
                Look::Instance(key) => {
                    let Some(own) = self.books.instances.get_mut(key).filter(|own| own.look == at) else {
                        continue;
                    };
                    own.look = Time::MAX;
                    self.examine(now, key);
                    self.probe(now, key);
                    let models = self.books.instances[key].models();
                    models.into_iter().for_each(|model| self.touch(model));
                }
            }
        }
        self.settle(now);
    }

    /// Says which promise the books break, for tests: a query that nobody will look at again, one that waits although an
    /// instance that suits it has room, or a count that is wrong.
    pub fn check(&self, now: Time) -> Result<(), String> {
        let Books { models, instances, queries, jobs, .. } = &self.books;
        for (key, query) in queries {
            if query.marked || query.look > query.deadline {
                return Err(format!("query {key:?} is not on the calendar: {:?}", query.attempts));
            }
            let live = query.attempts.iter().filter(|attempt| attempt.is_live()).count();
            if live == 0 && query.offer.is_none() {
                return Err(format!("query {key:?} has no attempt and no offer"));
            }
            for attempt in query.attempts.iter().filter(|attempt| attempt.is_wanted()) {
                let model = &models[attempt.model];
                let suits = |at: &&InstanceKey| {
                    let is_fast = self.is_fast(attempt.model, **at)
                        && !self.books.is_doubtful(attempt.model, **at, now)
                        && !query.background;
                    // What is due is looked at in this moment.
                    is_fast
                        && query.look > now
                        && (attempt.why == Why::First || !self.is_reserved(now, attempt.model, key))
                        && self.books.suits(attempt.model, query, **at, now) == Fit::Yes
                };
                if let Some(at) = model.instances.iter().find(suits) {
                    return Err(format!("query {key:?} waits although {at:?} has room: {attempt:?}"));
                }
            }
        }
        for (key, model) in models {
            let wanted = |query: &&Query<P, O>| {
                let mut wanted = query.attempts.iter().filter(|own| own.model == key && own.is_wanted());
                !query.background && wanted.any(|own| own.why == Why::First)
            };
            let waiting = queries.values().filter(wanted).count();
            let line = &model.line;
            let lanes: u32 = line.first.0.iter().map(|lane| lane.waiting).sum();
            if waiting != line.waiting as usize || lanes != line.waiting {
                return Err(format!("{waiting} queries wait, {} and {lanes} are counted", line.waiting));
            }
            let idle = |query: &&Query<P, O>| query.background && query.wanted(key).is_some();
            let idle = queries.values().filter(idle).count();
            if idle != line.background_waiting as usize {
                return Err(format!(
                    "{idle} wait for idle instances, {} are counted",
                    line.background_waiting
                ));
            }
            let members = model.instances.iter().map(|at| &instances[*at]).filter(|at| at.takes(key));
            let slots = members.filter_map(|at| Some(at.slots.min(at.of(key)?.at_once)));
            let slots: u32 = slots.map(u32::from).sum();
            if slots != model.slots {
                return Err(format!("{slots} slots are in service, and {} are counted", model.slots));
            }
        }
        if let Some((key, own)) = instances.iter().find(|(_, own)| own.look < now) {
            return Err(format!("instance {key:?} was not looked at at {:?}", own.look));
        }
        for (key, job) in jobs {
            let held = instances.get(job.instance).is_some_and(|instance| instance.jobs.contains(&key));
            let known = job.rows.iter().flatten().all(|query| {
                let own = queries.get(*query).map(|query| query.attempts.iter().filter_map(Attempt::running));
                own.is_some_and(|mut own| own.any(|(job, ..)| job == key))
            });
            if !held || !known {
                return Err(format!("job {key:?} is lost: held {held}, known {known}"));
            }
        }
        Ok(())
    }

    // --- The loop ---

    pub(crate) fn mark(&mut self, key: QueryKey) {
        if let Some(query) = self.books.queries.get_mut(key).filter(|query| !query.marked) {
            query.marked = true;
            self.marked.push(key);
        }
    }

    /// The matcher should look at a model.
    pub(crate) fn touch(&mut self, key: ModelKey) {
        let model = &mut self.books.models[key];
        if !model.dirty && !model.line.is_empty() {
            model.dirty = true;
            self.dirty.push(key);
        }
    }

    pub(crate) fn settle(&mut self, now: Time) {
        loop {
            while let Some(key) = self.marked.pop() {
                if let Some(query) = self.books.queries.get_mut(key) {
                    query.marked = false;
                    self.advance(now, key);
                }
            }
            if self.dirty.is_empty() {
                self.note_looks();
                if self.sharing > 0 {
                    self.note_asks(now);
                }
                return self.forget_models();
            }
            let matched = std::mem::take(&mut self.dirty);
            matched.iter().for_each(|model| self.books.models[*model].dirty = false);
            matched.iter().for_each(|model| self.match_again(now, *model, Urgency::StandIn));
            matched.iter().for_each(|model| self.match_again(now, *model, Urgency::Again));
            self.match_first(now, &matched);
            matched.iter().for_each(|model| self.match_again(now, *model, Urgency::Background));
        }
    }

    /// Puts the queries that wait now on the calendar.
    fn note_looks(&mut self) {
        for key in self.waiting.drain(..) {
            let Some(query) = self.books.queries.get_mut(key) else { continue };
            if query.look < query.noted {
                query.noted = query.look;
                self.calendar.note(query.look, Look::Query(key));
            }
        }
        let books = &self.books;
        self.calendar.arrange(|at, look| match look {
            Look::Query(key) => books.queries.get(key).is_some_and(|query| query.look == at),
            Look::Instance(key) => books.instances.get(key).is_some_and(|own| own.look == at),
        });
    }

    /// Takes a query's steps until it waits.
    fn advance(&mut self, now: Time, key: QueryKey) {
        loop {
            let Some(query) = self.books.queries.get(key) else { return };
            let facts = self.facts(now, query);
            let (before, mut limits) = (query.limits, query.limits);
            let step = step(query, &facts, now, &mut limits);
            if limits != before {
                let query = &mut self.books.queries[key];
                query.limits = limits;
                self.books.models[query.model].counters.limit(before, limits);
            }
            match step {
                Step::Wait { until } => return self.look_at(key, until),
                Step::Want { model, why } => self.want(key, model, why),
                Step::GiveUp(reject) => {
                    let model = self.books.queries[key].model;
                    self.reply(now, key, Err(reject));
                    // Without it the line may be short enough for others to start.
                    self.touch(model);
                }
                Step::GiveOffer => match self.books.queries[key].offer.take() {
                    Some(offer) => self.reply(now, key, Ok(offer)),
                    None => return,
                },
            }
        }
    }

    fn facts(&self, now: Time, query: &Query<P, O>) -> Facts {
        let model = &self.books.models[query.model];
        let settings = &model.settings;
        let policy = if query.background { Policy::ONCE } else { settings.policy };
        // Where no stand-in answers, copies start while at most a query waits for each slot.
        let stand_in = policy.stand_in.filter(|_| !query.accept.is_exact(&policy));
        let allowed = stand_in.map_or(1.0, |stand_in| stand_in.hedge_below);
        let facts = Facts {
            policy,
            max_attempts: settings.max_attempts,
            is_sole: model.instances.len() <= 1,
            copy_at: if policy.hedge { self.books.copy_at(query, now) } else { Time::MAX },
            may_copy: model.hedges.has_token()
                && f64::from(model.line.waiting) <= allowed * f64::from(model.slots),
            may_retry: model.retries.has_token(),
            gives_up: self.books.gives_up(query),
            give_at: Time::MAX,
            has_room: true,
            stand_in: None,
        };
        if policy.stand_in.is_some() || query.offer.is_some() {
            self.approximations(now, query, facts)
        } else {
            facts
        }
    }

    /// Adds what concerns approximate answers.
    fn approximations(&self, now: Time, query: &Query<P, O>, facts: Facts) -> Facts {
        let model = &self.books.models[query.model];
        let bounds = &self.books.bounds[model.bounds];
        let (usual, late) = self.usual_and_late(query, facts.policy);
        let of_client = match query.accept {
            Accept::AtMost(most) => bounds.client_has_room(now, query.payer, most),
            Accept::Any | Accept::Exact => true,
        };
        let is_bound = |policy: StandInPolicy| {
            !bounds.all.has_room(now, policy.bound) && !self.books.is_exempt(query.model, now)
        };
        Facts {
            give_at: query.arrived.later(late),
            has_room: of_client && !facts.policy.stand_in.is_some_and(is_bound),
            stand_in: facts.policy.stand_in.and_then(|of| self.stand_in(query, of, usual, late)),
            ..facts
        }
    }

    /// The usual time of a query, and the age at which it is late. While no run has ended, a run is assumed to take until the
    /// first copy.
    fn usual_and_late(&self, query: &Query<P, O>, policy: Policy) -> (f64, f64) {
        let model = &self.books.models[query.model];
        let cold = || COLD_HEDGE.as_nanos() as f64;
        let usual = model.times.usual(1.0, query.shape.size).unwrap_or_else(cold);
        let bound = policy.stand_in.map_or(1.0, |stand_in| stand_in.bound);
        (usual, policy.late_factor * self.books.bounds[model.bounds].all.stretch(bound) * usual)
    }

    /// The model's stand-in, and from when on the query is late enough for it.
    fn stand_in(
        &self,
        query: &Query<P, O>,
        policy: StandInPolicy,
        usual: f64,
        late: f64,
    ) -> Option<(ModelKey, Time)> {
        let model = &self.books.models[query.model];
        let key = model.settings.stand_in?;
        let stand_in = self.books.models.get(key).filter(|stand_in| stand_in.deserted.is_none())?;
        // A query that waits is late as soon as its own run could not end in time.
        let runs = query.exact().any(|attempt| attempt.running().is_some());
        if policy.at_once {
            return Some((key, if runs { query.arrived } else { Time::MAX }));
        }
        let cheap = stand_in.times.usual(1.0, query.shape.size).unwrap_or(usual);
        let patience = cheap * self.books.bounds[model.bounds].all.used(policy.bound) * STAND_IN_PATIENCE;
        let waits = late.min((late + patience - usual).max(0.0));
        Some((key, query.arrived.later(if runs { late } else { waits })))
    }

    pub(crate) fn look_at(&mut self, key: QueryKey, until: Time) {
        if let Some(query) = self.books.queries.get_mut(key).filter(|query| until < query.look) {
            query.look = until;
            self.waiting.push(key);
        }
    }

    pub(crate) fn look_at_instance(&mut self, key: InstanceKey, until: Time) {
        if let Some(instance) = self.books.instances.get_mut(key).filter(|own| until < own.look) {
            instance.look = until;
            self.calendar.note(until, Look::Instance(key));
        }
    }
}

/// The models of an instance or of a query's attempts.
pub(crate) type Models = SmallVec<[ModelKey; 2]>;

/// The runs of a stand-in for which a query that cannot be in time still waits for an instance, when the whole bound on
/// approximate answers is used.
const STAND_IN_PATIENCE: f64 = 5.0;
