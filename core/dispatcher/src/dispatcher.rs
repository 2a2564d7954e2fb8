//! The loop: an event changes facts and marks queries, each marked query is asked for its next step until it waits, and
//! the matcher brings wanted attempts and instances with room together.
//!
//! The matcher is entered for each model whose line or whose instances changed. It serves the lines in the order of
//! urgency: stand-ins of late queries, retries and copies, queries that have not run yet. Then a query that waits has no
//! free instance that suits it, which the random tests check after each event.

use std::collections::VecDeque;

use slotmap::SlotMap;

use crate::calendar::{Calendar, Look};
use crate::instance::{Instance, InstanceKey, InstanceSpec, Job};
use crate::model::{Line, Model, ModelKey, ModelSettings};
use crate::policy::Placement;
use crate::query::{
    Answer, Attempt, AttemptState, Failure, JobKey, Query, QueryKey, Reject, Submission, Why,
};
use crate::step::{Facts, StandIn, Step, step};
use crate::suits::{Books, Fit};
use crate::time::Time;

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
        /// On what.
        payload: P,
        /// Why.
        why: Why,
    },
    /// Nobody needs a run any more. Stop it if that is possible, and report its end in any case.
    Cancel {
        /// The name of the run.
        job: JobKey,
        /// Where it runs.
        instance: InstanceKey,
    },
    /// Answer a query. Its name means nothing from now on.
    Reply {
        /// The query.
        query: QueryKey,
        /// Its answer, or why it has none.
        result: Result<Answer<O>, Reject>,
    },
}

/// What happened to a model's queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Queries that were submitted.
    pub submitted: u64,
    /// Attempts that started because a query had not run yet.
    pub first: u64,
    /// Attempts after failures.
    pub retried: u64,
    /// Copies of late queries.
    pub hedged: u64,
    /// Runs of the stand-in.
    pub stood_in: u64,
    /// Copies that no query waits for.
    pub explored: u64,
    /// Answers of the model itself.
    pub exact: u64,
    /// Answers of the stand-in.
    pub approximate: u64,
    /// Queries without an answer.
    pub rejected: u64,
}

/// Why a run has no answer: it failed, or it was cancelled before it ended.
type End<O> = Result<O, Option<Failure>>;

/// Decides what runs where. See the [crate].
#[derive(Debug)]
pub struct Dispatcher<P, O> {
    books: Books<P, O>,
    calendar: Calendar,
    marked: Vec<QueryKey>,
    dirty: Vec<ModelKey>,
    actions: Vec<Action<P, O>>,
}

impl<P: Clone, O> Default for Dispatcher<P, O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Clone, O> Dispatcher<P, O> {
    /// One without models.
    pub fn new() -> Self {
        let (models, instances) = (SlotMap::with_key(), SlotMap::with_key());
        let books = Books { models, instances, queries: SlotMap::with_key(), jobs: SlotMap::with_key() };
        Self {
            books,
            calendar: Calendar::default(),
            marked: Vec::new(),
            dirty: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Adds a model.
    pub fn add_model(&mut self, settings: ModelSettings) -> ModelKey {
        self.books.models.insert(Model::new(settings))
    }

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

    /// Adds an instance.
    pub fn join(&mut self, now: Time, spec: &InstanceSpec) -> InstanceKey {
        let key = self.books.instances.insert(Instance::new(spec));
        for model in &spec.models {
            self.books.models[*model].instances.push(key);
            self.compare(*model);
        }
        self.free(key);
        self.settle(now);
        key
    }

    /// Removes an instance. Its jobs fail.
    pub fn leave(&mut self, now: Time, key: InstanceKey) {
        let Some(mut instance) = self.books.instances.remove(key) else { return };
        for served in &instance.serves {
            let model = &mut self.books.models[served.model];
            model.instances.retain(|at| *at != key);
            model.free.out.retain(|at| *at != key);
        }
        for served in &instance.serves {
            self.compare(served.model);
        }
        for job in instance.jobs.drain(..) {
            let Some(job) = self.books.jobs.remove(job).map(|of| (job, of)) else { continue };
            self.attempt_ended(now, job, Err(Some(Failure::Instance)));
        }
        self.settle(now);
    }

    /// Accepts a query.
    ///
    /// # Panics
    ///
    /// If the model is not one of this dispatcher.
    pub fn submit(&mut self, now: Time, query: Submission<P>) -> QueryKey {
        let Submission { model: of, payload, deadline, accept } = query;
        let key = self.books.queries.insert(Query {
            model: of,
            payload,
            arrived: now,
            deadline,
            accept,
            attempts: Default::default(),
            offer: None,
            look: Time::MAX,
            marked: false,
        });
        let model = &mut self.books.models[of];
        model.counters.submitted += 1;
        model.arrivals.note(now);
        if model.line.waiting >= model.settings.queue_limit {
            self.reply(now, key, Err(Reject::QueueFull));
        } else {
            self.mark(key);
        }
        self.settle(now);
        key
    }

    /// Forgets a query whose client is gone. There is no reply.
    pub fn cancel(&mut self, now: Time, query: QueryKey) {
        self.end(query);
        self.settle(now);
    }

    /// A run ended: with its output, with a failure, or without either because it was cancelled.
    pub fn ended(&mut self, now: Time, job: JobKey, end: Result<O, Option<Failure>>) {
        let Some(of) = self.books.jobs.remove(job) else { return };
        self.learn(now, job, &of, &end);
        let instance = of.instance;
        self.attempt_ended(now, (job, of), end);
        self.free(instance);
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
                    query.look = Time::MAX;
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
                    let models: Models = own.serves.iter().map(|served| served.model).collect();
                    models.into_iter().for_each(|model| self.touch(model));
                }
            }
        }
        self.settle(now);
    }

    /// Says which promise the books break, for tests: a query that nobody will look at again, one that waits although an
    /// instance that suits it has room, or a count that is wrong.
    pub fn check(&self, now: Time) -> Result<(), String> {
        let Books { models, instances, queries, jobs } = &self.books;
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
                    let is_fast = self.is_fast(attempt.model, **at) && !self.books.may_hang(**at, now);
                    // What is due is looked at in this moment.
                    is_fast
                        && query.look > now
                        && self.books.suits(attempt.model, query, **at, now) == Fit::Yes
                };
                if let Some(at) = model.instances.iter().find(suits) {
                    return Err(format!("query {key:?} waits although {at:?} has room: {attempt:?}"));
                }
            }
        }
        for (key, model) in models {
            let wanted = |query: &&Query<P, O>| {
                query.attempts.iter().any(|own| own.model == key && own.is_wanted() && own.why.is_first())
            };
            let waiting = queries.values().filter(wanted).count();
            if waiting != model.line.waiting as usize {
                return Err(format!("{waiting} queries wait, and {} are counted", model.line.waiting));
            }
        }
        for (key, job) in jobs {
            let held = instances.get(job.instance).is_some_and(|instance| instance.jobs.contains(&key));
            let known = job.query.is_none_or(|query| {
                let own = queries.get(query).map(|query| query.attempts.iter().filter_map(Attempt::running));
                own.is_some_and(|mut own| own.any(|(job, ..)| job == key))
            });
            if !held || !known {
                return Err(format!("job {key:?} is lost: held {held}, known {known}"));
            }
        }
        Ok(())
    }

    // --- The loop ---

    fn mark(&mut self, key: QueryKey) {
        if let Some(query) = self.books.queries.get_mut(key).filter(|query| !query.marked) {
            query.marked = true;
            self.marked.push(key);
        }
    }

    /// The matcher should look at a model.
    fn touch(&mut self, key: ModelKey) {
        let model = &mut self.books.models[key];
        if !model.dirty && !model.line.is_empty() {
            model.dirty = true;
            self.dirty.push(key);
        }
    }

    fn settle(&mut self, now: Time) {
        loop {
            while let Some(key) = self.marked.pop() {
                if let Some(query) = self.books.queries.get_mut(key) {
                    query.marked = false;
                    self.advance(now, key);
                }
            }
            if self.dirty.is_empty() {
                return;
            }
            let dirty = std::mem::take(&mut self.dirty);
            dirty.iter().for_each(|model| self.books.models[*model].dirty = false);
            dirty.iter().for_each(|model| self.match_again(now, *model, Urgency::StandIn));
            dirty.iter().for_each(|model| self.match_again(now, *model, Urgency::Again));
            dirty.iter().for_each(|model| self.match_first(now, *model));
        }
    }

    /// Takes a query's steps until it waits.
    fn advance(&mut self, now: Time, key: QueryKey) {
        loop {
            let Some(query) = self.books.queries.get(key) else { return };
            let facts = self.facts(now, query);
            match step(query, &facts, now) {
                Step::Wait { until } => return self.look_at(key, until),
                Step::Want { model, why } => self.want(key, model, why),
                Step::GiveUp(reject) => self.reply(now, key, Err(reject)),
                Step::GiveOffer => {
                    let offer = self.books.queries[key].offer.take();
                    if let Some(output) = offer {
                        self.reply(now, key, Ok(Answer::StandIn(output)));
                    }
                }
            }
        }
    }

    fn facts(&self, now: Time, query: &Query<P, O>) -> Facts {
        let model = &self.books.models[query.model];
        let settings = &model.settings;
        let policy = settings.policy;
        let allowed = policy.stand_in.map_or(1.0, |stand_in| stand_in.hedge_below);
        Facts {
            policy,
            max_attempts: settings.max_attempts,
            copy_at: if policy.hedge { self.books.copy_at(query, now) } else { Time::MAX },
            may_copy: model.hedges.has_token()
                && f64::from(model.line.waiting) <= allowed * f64::from(model.slots),
            may_retry: model.retries.has_token(),
            stand_in: self.stand_in(now, query),
        }
    }

    fn stand_in(&self, now: Time, query: &Query<P, O>) -> Option<StandIn> {
        let model = &self.books.models[query.model];
        let (settings, key) = (model.settings.policy.stand_in?, model.settings.stand_in?);
        let stand_in = self.books.models.get(key).filter(|stand_in| stand_in.slots > 0)?;
        let usual = model.times.usual(&Default::default())?;
        let late = settings.late_factor * model.bound.stretch(settings.bound) * usual;
        let give_at = query.arrived.later(late);
        // A query that waits is late as soon as its own run could not end in time.
        let runs = query.exact().any(|attempt| attempt.running().is_some());
        let cheap = stand_in.times.usual(&Default::default()).unwrap_or(usual);
        let patience = cheap * model.bound.used(settings.bound) * PATIENCE;
        let waits = late.min((late + patience - usual).max(0.0));
        let late_at = query.arrived.later(if runs { late } else { waits });
        Some(StandIn { model: key, late_at, give_at, has_room: model.bound.has_room(now, settings.bound) })
    }

    fn look_at(&mut self, key: QueryKey, until: Time) {
        if let Some(query) = self.books.queries.get_mut(key).filter(|query| until < query.look) {
            query.look = until;
            self.calendar.note(until, Look::Query(key));
        }
    }

    fn look_at_instance(&mut self, key: InstanceKey, until: Time) {
        if let Some(instance) = self.books.instances.get_mut(key).filter(|own| until < own.look) {
            instance.look = until;
            self.calendar.note(until, Look::Instance(key));
        }
    }

    // --- Attempts ---

    fn want(&mut self, key: QueryKey, model: ModelKey, why: Why) {
        let query = &mut self.books.queries[key];
        query
            .attempts
            .retain(|attempt| !matches!(attempt.state, AttemptState::Over) || attempt.model != model);
        let attempt = Attempt { model, why, state: AttemptState::Wanted };
        query.attempts.push(attempt);
        let of = &mut self.books.models[query.model];
        match why {
            Why::Hedge => {
                of.hedges.spend();
                of.cold_copies += u8::from(!of.times.is_known() && of.cold_copies < u8::MAX);
            }
            Why::Retry => of.retries.spend(),
            Why::First | Why::StandIn | Why::Explore | Why::Copy => {}
        }
        let line = &mut self.books.models[model].line;
        match why {
            Why::First => {
                line.waiting += 1;
                line.first.push_back(key);
            }
            Why::StandIn => line.stand_ins.push_back(key),
            Why::Retry | Why::Hedge | Why::Copy | Why::Explore => line.again.push_back(key),
        }
        self.touch(model);
    }

    /// A wanted attempt starts, or is not needed any more: the only way out of the line.
    fn leave_line(&mut self, model: ModelKey, why: Why, started: bool) {
        let of = &mut self.books.models[model];
        of.line.waiting -= u32::from(why.is_first());
        match why {
            Why::Hedge if !started => of.hedges.refund(),
            Why::Retry if !started => of.retries.refund(),
            _ => {}
        }
    }

    fn start(&mut self, now: Time, key: QueryKey, at: usize, instance: InstanceKey) {
        let Attempt { model, why, .. } = self.books.queries[key].attempts[at];
        self.leave_line(model, why, true);
        let job = self.run(now, Some(key), model, why, instance, key);
        self.books.queries[key].attempts[at].state = AttemptState::Running { job, instance, began: now };
        let of = self.books.queries[key].model;
        let model = &mut self.books.models[of];
        let counters = &mut model.counters;
        match why {
            Why::First => {
                counters.first += 1;
                model.hedges.earn();
                model.retries.earn();
            }
            Why::Retry => counters.retried += 1,
            Why::Hedge | Why::Copy => counters.hedged += 1,
            Why::StandIn => {
                counters.stood_in += 1;
                self.withdraw(key, of);
            }
            Why::Explore => {}
        }
        self.mark(key);
        if why.is_first() {
            self.explore(now, of, instance, key);
        }
    }

    /// A query whose stand-in runs leaves the line of the model itself.
    fn withdraw(&mut self, key: QueryKey, model: ModelKey) {
        let query = &mut self.books.queries[key];
        if let Some(at) = query.wanted(model) {
            query.attempts[at].state = AttemptState::Over;
            let why = query.attempts[at].why;
            self.leave_line(model, why, false);
        }
    }

    /// Runs a model at an instance, on the payload of a query.
    fn run(
        &mut self,
        now: Time,
        waits: Option<QueryKey>,
        model: ModelKey,
        why: Why,
        instance: InstanceKey,
        of: QueryKey,
    ) -> JobKey {
        let payload = self.books.queries[of].payload.clone();
        let job = self.books.jobs.insert(Job { model, instance, query: waits, began: now });
        let here = &mut self.books.instances[instance];
        here.jobs.push(job);
        if let Some(served) = here.of_mut(model) {
            served.ran_at = now;
        }
        self.actions.push(Action::Run { job, instance, model, payload, why });
        job
    }

    /// Shows how fast an idle slow instance is, or whether one that is out works again, with a copy of a query that has just
    /// started elsewhere.
    fn explore(&mut self, now: Time, key: ModelKey, beside: InstanceKey, query: QueryKey) {
        let model = &self.books.models[key];
        let policy = model.settings.policy;
        if !policy.repeats || policy.placement == Placement::InTurn {
            return;
        }
        let mut slow = model.free.slow.iter().map(|(_, at)| at).chain(&model.free.out);
        let Some(at) = slow.find(|at| {
            **at != beside
                && self.books.instances.contains_key(**at)
                && self.books.is_unexplored(key, **at, now)
        }) else {
            return;
        };
        let at = *at;
        let health = model.settings.health;
        self.run(now, None, key, Why::Explore, at, query);
        self.books.models[key].counters.explored += 1;
        let instance = &mut self.books.instances[at];
        if !instance.health.in_service() {
            instance.health.begin_trial(now, &health);
        }
    }

    fn attempt_ended(&mut self, now: Time, (key, job): (JobKey, Job), end: End<O>) {
        let Some(query_key) = job.query else { return };
        let Some(query) = self.books.queries.get_mut(query_key) else { return };
        let is_exact = job.model == query.model;
        let own = query.attempts.iter_mut().find(|own| own.running().is_some_and(|(job, ..)| job == key));
        let Some(attempt) = own else { return };
        match end {
            Ok(output) if is_exact => return self.reply(now, query_key, Ok(Answer::Exact(output))),
            Ok(output) => {
                attempt.state = AttemptState::Over;
                query.offer = Some(output);
            }
            Err(failure) => {
                let failure = failure.unwrap_or(Failure::Instance);
                attempt.state = AttemptState::Failed { instance: job.instance, at: now, failure };
            }
        }
        self.mark(query_key);
    }

    fn reply(&mut self, now: Time, key: QueryKey, result: Result<Answer<O>, Reject>) {
        let Some(model) = self.end(key) else { return };
        let model = &mut self.books.models[model];
        let counters = &mut model.counters;
        match &result {
            Ok(Answer::Exact(_)) => counters.exact += 1,
            Ok(Answer::StandIn(_)) => counters.approximate += 1,
            Err(_) => counters.rejected += 1,
        }
        if let (Ok(answer), Some(_)) = (&result, model.settings.policy.stand_in) {
            model.bound.note(now, matches!(answer, Answer::StandIn(_)));
        }
        self.actions.push(Action::Reply { query: key, result });
    }

    /// Removes a query: its wanted attempts leave the line, and its running ones are cancelled.
    fn end(&mut self, key: QueryKey) -> Option<ModelKey> {
        let query = self.books.queries.remove(key)?;
        for attempt in &query.attempts {
            match attempt.state {
                AttemptState::Wanted => self.leave_line(attempt.model, attempt.why, false),
                AttemptState::Running { job, instance, .. } => {
                    if let Some(of) = self.books.jobs.get_mut(job) {
                        of.query = None;
                        self.actions.push(Action::Cancel { job, instance });
                    }
                }
                AttemptState::Failed { .. } | AttemptState::Over => {}
            }
        }
        Some(query.model)
    }

    // --- The matcher ---

    /// Serves the stand-ins of late queries, or the retries and copies.
    fn match_again(&mut self, now: Time, model: ModelKey, urgency: Urgency) {
        let mut at = 0;
        while let Some(key) = urgency.line(&mut self.books.models[model].line).get(at).copied() {
            let wanted = self.books.queries.get(key).and_then(|query| query.wanted(model));
            let Some(attempt) = wanted else {
                urgency.line(&mut self.books.models[model].line).remove(at);
                continue;
            };
            if self.books.models[model].free.is_empty() {
                return;
            }
            let instance = match self.find(now, model, key) {
                Place::At(instance) => instance,
                Place::NotForThis => {
                    at += 1;
                    continue;
                }
                Place::Nowhere => return,
            };
            urgency.line(&mut self.books.models[model].line).remove(at);
            self.unlist(model, instance);
            self.start(now, key, attempt, instance);
            self.free(instance);
        }
    }

    /// Serves the queries that have not run yet: the first in line, or the last if the instance is slow.
    fn match_first(&mut self, now: Time, key: ModelKey) {
        let mut at = 0;
        while let Some(first) = self.books.models[key].line.first.get(at).copied() {
            if !self.waits_first(key, first) {
                self.books.models[key].line.first.remove(at);
                continue;
            }
            let instance = match self.find(now, key, first) {
                Place::At(instance) => instance,
                Place::NotForThis => {
                    at += 1;
                    continue;
                }
                Place::Nowhere => return,
            };
            let query = &self.books.queries[first];
            if self.is_fast(key, instance) || self.books.must_start(key, query, instance, now) {
                self.books.models[key].line.first.remove(at);
                self.start_first(now, key, first, instance);
                continue;
            }
            while let Some(last) = self.books.models[key].line.first.pop_back() {
                if !self.waits_first(key, last) {
                    continue;
                }
                let suits = self.books.suits(key, &self.books.queries[last], instance, now) == Fit::Yes;
                if !suits {
                    self.books.models[key].line.first.push_back(last);
                    self.books.models[key].line.first.remove(at);
                }
                self.start_first(now, key, if suits { last } else { first }, instance);
                break;
            }
        }
    }

    /// Whether an entry of the line is a query that has not run yet.
    fn waits_first(&self, model: ModelKey, key: QueryKey) -> bool {
        let query = self.books.queries.get(key);
        query.is_some_and(|query| query.wanted(model).is_some_and(|at| query.attempts[at].why.is_first()))
    }

    fn start_first(&mut self, now: Time, model: ModelKey, key: QueryKey, instance: InstanceKey) {
        if let Some(at) = self.books.queries[key].wanted(model) {
            self.unlist(model, instance);
            self.start(now, key, at, instance);
            self.free(instance);
        }
    }

    fn is_fast(&self, model: ModelKey, at: InstanceKey) -> bool {
        let pool = &self.books.models[model];
        pool.settings.policy.placement == Placement::InTurn
            || self.books.served(model, at).is_some_and(|served| pool.is_fast(served.speed.slower()))
    }

    /// The free instance that should run a query's attempt now. If it should wait, notes when to look again.
    fn find(&mut self, now: Time, model: ModelKey, key: QueryKey) -> Place {
        self.tidy(model);
        let (books, query) = (&self.books, &self.books.queries[key]);
        let free = &books.models[model].free;
        let (mut look, mut wait) = (Time::MAX, None);
        let (mut found, mut hangs, mut has_room) = (None, None, false);
        let slow = free.slow.iter().map(|(_, at)| (true, *at));
        for (is_slow, at) in free.fast.iter().map(|at| (false, *at)).chain(slow) {
            match books.suits(model, query, at, now) {
                Fit::No => has_room |= query.is_at(at) && books.instances[at].has_room(),
                Fit::From(from) => {
                    has_room = true;
                    look = look.min(from);
                }
                // Only if no other has room.
                Fit::Yes if books.may_hang(at, now) => hangs = hangs.or(Some(at)),
                Fit::Yes if is_slow => match books.waits_for_faster(model, at, query, now) {
                    None => found = Some(at),
                    Some(until) => {
                        wait = wait.filter(|(_, own)| *own <= until).or(Some((at, until)));
                    }
                },
                Fit::Yes => found = Some(at),
            }
            if found.is_some() {
                break;
            }
        }
        let mut found = found.or(hangs.filter(|_| wait.is_none()));
        if found.is_none() && wait.is_none() {
            // No instance in service has room, so one that was taken out has a chance to show that it works.
            for at in &free.out {
                let instance = &books.instances[*at];
                if !instance.jobs.is_empty() || query.is_at(*at) {
                    continue;
                }
                match instance.health.trial_at() {
                    Some(due) if due > now => look = look.min(due),
                    _ => found = found.or(Some(*at)),
                }
            }
        }
        if let Some((at, until)) = wait.filter(|_| found.is_none()) {
            self.look_at_instance(at, until);
        }
        if found.is_none() && look < Time::MAX {
            self.look_at(key, look);
        }
        match found {
            Some(at) => Place::At(at),
            None if has_room => Place::NotForThis,
            None => Place::Nowhere,
        }
    }

    /// Drops entries of the set of free instances that have no room.
    fn tidy(&mut self, key: ModelKey) {
        let Books { models, instances, .. } = &mut self.books;
        let free = &mut models[key].free;
        let mut has_room = |at: &InstanceKey| {
            let Some(instance) = instances.get_mut(*at) else { return false };
            let stays = instance.has_room() && instance.health.in_service();
            if !stays && let Some(served) = instance.of_mut(key) {
                served.listed = false;
            }
            stays
        };
        while free.fast.front().is_some_and(|at| !has_room(at)) {
            free.fast.pop_front();
        }
        free.slow.retain(|(_, at)| has_room(at));
    }

    /// Lists an instance that may have room, for each of its models.
    fn free(&mut self, key: InstanceKey) {
        let Books { models, instances, .. } = &mut self.books;
        let Some(instance) = instances.get_mut(key) else { return };
        if !instance.has_room() {
            return;
        }
        let in_service = instance.health.in_service();
        let mut touched = Models::new();
        for served in &mut instance.serves {
            touched.push(served.model);
            if served.listed || !in_service {
                continue;
            }
            served.listed = true;
            models[served.model].list(key, served.speed.slower());
        }
        touched.into_iter().for_each(|model| self.touch(model));
    }

    /// Takes an instance out of a model's set of free instances, before a run starts there.
    fn unlist(&mut self, model: ModelKey, key: InstanceKey) {
        let free = &mut self.books.models[model].free;
        if let Some(at) = free.fast.iter().position(|at| *at == key) {
            free.fast.remove(at);
        }
        free.slow.retain(|(_, at)| *at != key);
        if let Some(served) = self.books.instances.get_mut(key).and_then(|own| own.of_mut(model)) {
            served.listed = false;
        }
    }

    // --- Learning ---

    /// Learns from the end of a run: times, speeds and health.
    fn learn(&mut self, now: Time, key: JobKey, job: &Job, end: &End<O>) {
        let Books { models, instances, .. } = &mut self.books;
        let Some(instance) = instances.get_mut(job.instance) else { return };
        instance.jobs.retain(|own| *own != key);
        let nanos = now.nanos_since(job.began);
        let model = &mut models[job.model];
        match end {
            Ok(_) => {
                let was_out = !instance.health.in_service();
                instance.health.answered();
                let Some(served) = instance.of_mut(job.model) else { return };
                let before = served.speed.slower();
                let expected = model.times.usual(&served.speed);
                model.times.learn(&mut served.speed, nanos, expected);
                served.speed.compare(model.times.median(), model.times.deviation());
                let after = served.speed.slower();
                model.compared += 1;
                let is_new = model.is_fast(before) != model.is_fast(after) || after < model.fastest;
                if was_out {
                    self.back_in_service(job.instance);
                } else if is_new || model.compared >= COMPARE_EVERY.max(model.instances.len() as u32 / 4) {
                    self.compare(job.model);
                }
            }
            Err(None) => {
                let usual = instance.of(job.model).and_then(|served| model.times.usual(&served.speed));
                let Some(usual) = usual else { return };
                let is_silent =
                    model.times.rest.is_known() && model.times.rest.after(nanos / usual).is_infinite();
                model.times.rest.add_cancelled(nanos / usual);
                if is_silent {
                    self.take_out(now, job.instance, job.model);
                }
            }
            Err(Some(Failure::Instance)) => {
                if instance.health.failed(&model.settings.health) {
                    self.take_out(now, job.instance, job.model);
                }
            }
            Err(Some(Failure::Model)) => {}
        }
    }

    /// Compares the speeds of a model's instances.
    fn compare(&mut self, key: ModelKey) {
        let Books { models, instances, .. } = &mut self.books;
        let model = &mut models[key];
        model.compared = 0;
        let in_service =
            |at: &&InstanceKey| instances.get(**at).is_some_and(|instance| instance.health.in_service());
        let members: Vec<InstanceKey> = model.instances.iter().filter(in_service).copied().collect();
        let mut means: Vec<f32> =
            members.iter().filter_map(|at| instances[*at].of(key)?.speed.mean()).collect();
        if !means.is_empty() {
            let middle = means.len() / 2;
            model.times.compare(*means.select_nth_unstable_by(middle, f32::total_cmp).1);
        }
        let (median, deviation) = (model.times.median(), model.times.deviation());
        (model.slots, model.capacity, model.fastest) = (0, 0.0, f32::INFINITY);
        for at in &members {
            let instance = &mut instances[*at];
            let slots = instance.slots;
            let Some(served) = instance.of_mut(key) else { continue };
            served.speed.compare(median, deviation);
            let slower = served.speed.slower();
            model.slots += u32::from(slots);
            model.capacity += f64::from(slots) * f64::from(-slower).exp();
            model.fastest = model.fastest.min(slower);
        }
        model.fastest = if members.is_empty() { 0.0 } else { model.fastest };
        // Instances may have become fast or slow.
        let free = std::mem::take(&mut model.free.fast).into_iter();
        let free: Vec<_> =
            free.chain(std::mem::take(&mut model.free.slow).into_iter().map(|(_, at)| at)).collect();
        for at in free {
            let served = instances.get(at).and_then(|instance| instance.of(key));
            if let Some(slower) = served.map(|served| served.speed.slower()) {
                model.list(at, slower);
            }
        }
        self.touch(key);
    }

    /// Takes an instance out of service, unless too few instances of one of its models would stay.
    fn take_out(&mut self, now: Time, key: InstanceKey, model: ModelKey) {
        let settings = self.books.models[model].settings.health;
        let instance = &self.books.instances[key];
        let models: Models = instance.serves.iter().map(|served| served.model).collect();
        if instance.health.in_service() {
            let may_leave = |model: &ModelKey| {
                let members = &self.books.models[*model].instances;
                let stay =
                    members.iter().filter(|at| self.books.instances[**at].health.in_service()).count() - 1;
                stay as f64 >= (settings.least_in_service * members.len() as f64).ceil().max(1.0)
            };
            if !models.iter().all(may_leave) {
                return;
            }
            models.iter().for_each(|model| self.books.models[*model].free.out.push(key));
        }
        self.books.instances[key].health.take_out(now, &settings);
        models.into_iter().for_each(|model| self.compare(model));
    }

    fn back_in_service(&mut self, key: InstanceKey) {
        let instance = &self.books.instances[key];
        let models: Models = instance.serves.iter().map(|served| served.model).collect();
        for model in models {
            self.books.models[model].free.out.retain(|at| *at != key);
            self.compare(model);
        }
    }
}

/// All speeds are compared again after so many runs, and at once if one instance becomes slow or fast.
const COMPARE_EVERY: u32 = 32;

/// The models of an instance or of a query's attempts.
type Models = smallvec::SmallVec<[ModelKey; 2]>;

/// Where an attempt may start now.
enum Place {
    At(InstanceKey),
    /// Some instance has room, but this query avoids it.
    NotForThis,
    /// No instance has room, or a faster one will have it soon.
    Nowhere,
}

/// A line of attempts beyond the first.
#[derive(Clone, Copy)]
enum Urgency {
    StandIn,
    Again,
}

impl Urgency {
    fn line(self, line: &mut Line) -> &mut VecDeque<QueryKey> {
        match self {
            Urgency::StandIn => &mut line.stand_ins,
            Urgency::Again => &mut line.again,
        }
    }
}

/// The runs of a stand-in for which a query that cannot be in time still waits for an instance, when the whole bound on
/// approximate answers is used.
const PATIENCE: f64 = 5.0;
