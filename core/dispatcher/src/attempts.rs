//! The life of an attempt: it is wanted, starts, and ends; and the end of a query.

use smallvec::SmallVec;

use crate::bound::Bound;
use crate::condition::PATIENCE;
use crate::dispatcher::{Action, Dispatcher, End, Row};
use crate::instance::{InstanceKey, Job};
use crate::model::ModelKey;
use crate::policy::Placement;
use crate::query::{
    Accept, Answer, Attempt, AttemptState, By, Failure, JobKey, Query, QueryKey, Reject, Why,
};
use crate::time::Time;
use crate::turns::Payer;

/// Queries of one job.
pub(crate) type Keys = SmallVec<[QueryKey; 1]>;

impl<P: Clone, O> Dispatcher<P, O> {
    /// A query wants a run.
    pub(crate) fn want(&mut self, key: QueryKey, model: ModelKey, why: Why) {
        let query = &mut self.books.queries[key];
        let (is_background, payer, priority) = (query.background, query.payer, query.priority);
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
            Why::First | Why::Retry if is_background => line.background.push_back(key),
            Why::First => {
                line.waiting += 1;
                line.first.push(payer, priority, key);
                self.turns.wait(payer);
            }
            Why::StandIn => line.stand_ins.push_back(key),
            Why::Retry | Why::Hedge | Why::Copy | Why::Explore => line.again.push_back(key),
        }
        self.touch(model);
    }

    /// A wanted attempt starts, or is not needed any more: the only way out of the line.
    fn leave_line(&mut self, model: ModelKey, why: Why, of_query: (Payer, bool), started: bool) {
        let of = &mut self.books.models[model];
        let (payer, background) = of_query;
        if why.is_first() && !background {
            of.line.waiting -= 1;
            self.turns.leave(payer);
        }
        match why {
            Why::Hedge if !started => of.hedges.refund(),
            Why::Retry if !started => of.retries.refund(),
            _ => {}
        }
    }

    /// Starts wanted attempts of these queries on a model in one job: several, if they are rows of a batch.
    pub(crate) fn start(&mut self, now: Time, model: ModelKey, keys: &Keys, instance: InstanceKey) {
        let wanted = |query: QueryKey| self.books.queries.get(query)?.wanted(model).map(|at| (query, at));
        let rows: SmallVec<[(QueryKey, usize); 1]> = keys.iter().copied().filter_map(wanted).collect();
        let Some((first, at)) = rows.first().copied() else { return };
        let why = self.books.queries[first].attempts[at].why;
        let job = self.run(now, model, why, instance, keys, true);
        for (key, at) in rows {
            let query = &mut self.books.queries[key];
            query.attempts[at].state = AttemptState::Running { job, instance, began: now };
            let (of, background, why) = (query.model, query.background, query.attempts[at].why);
            let payer = query.payer;
            self.leave_line(model, why, (payer, background), true);
            let model = &mut self.books.models[of];
            let counters = &mut model.counters;
            match why {
                Why::First => {
                    counters.first += 1;
                    model.hedges.earn();
                    model.retries.earn();
                }
                Why::Retry => counters.retried += 1,
                Why::Hedge => counters.hedged += 1,
                Why::Copy => counters.replicated += 1,
                Why::StandIn => {
                    counters.stood_in += 1;
                    self.withdraw(key, of);
                }
                Why::Explore => {}
            }
            self.mark(key);
            if why.is_first() && !background {
                self.explore(now, of, instance, key);
            }
        }
    }

    /// A query whose stand-in runs leaves the line of the model itself.
    fn withdraw(&mut self, key: QueryKey, model: ModelKey) {
        let query = &mut self.books.queries[key];
        if let Some(at) = query.wanted(model) {
            query.attempts[at].state = AttemptState::Over;
            let (why, of_query) = (query.attempts[at].why, (query.payer, query.background));
            self.leave_line(model, why, of_query, false);
        }
    }

    /// Runs a model at an instance on the payloads of queries, which wait for it or not.
    fn run(
        &mut self,
        now: Time,
        model: ModelKey,
        why: Why,
        instance: InstanceKey,
        keys: &[QueryKey],
        waits: bool,
    ) -> JobKey {
        let (mut rows, mut size) = (SmallVec::new(), 1);
        for key in keys {
            let query = &self.books.queries[*key];
            rows.push(Row { query: *key, payload: query.payload.clone() });
            size = size.max(query.shape.size);
        }
        let payer = self.books.queries[keys[0]].payer;
        let charge = self.turns.begin(payer, model, why.is_first() || why == Why::Retry);
        let job = self.books.jobs.insert(Job {
            model,
            instance,
            rows: keys.iter().map(|key| waits.then_some(*key)).collect(),
            work: size.saturating_mul(keys.len() as u32),
            why,
            payer,
            charge,
            began: now,
        });
        let counters = &mut self.books.models[model].counters;
        counters.jobs += 1;
        counters.batches += u64::from(why.is_first());
        let here = &mut self.books.instances[instance];
        here.jobs.push(job);
        here.grants = here.grants.map(|grants| grants.saturating_sub(1));
        if here.look == Time::MAX {
            self.look_at_instance(instance, now + PATIENCE);
        }
        let here = &mut self.books.instances[instance];
        if let Some(served) = here.of_mut(model) {
            served.ran_at = now;
        }
        self.actions.push(Action::Run { job, instance, model, why, rows });
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
        self.run(now, key, Why::Explore, at, &[query], false);
        self.books.models[key].counters.explored += 1;
        let instance = &mut self.books.instances[at];
        if !instance.health.in_service() {
            instance.health.begin_trial(now, &health);
        }
    }

    /// The attempts of a job's rows end.
    pub(crate) fn attempts_ended(&mut self, now: Time, key: JobKey, job: &Job, end: End<O>) {
        let is_batch = job.rows.len() > 1;
        let mut outputs = SmallVec::<[Option<O>; 1]>::new();
        let failure = match end {
            End::Answered(of) => {
                outputs = of;
                Failure::Model
            }
            End::Failed(failure) => failure,
            End::Cancelled => Failure::Instance,
        };
        let mut outputs = outputs.into_iter();
        for row in &job.rows {
            let output = outputs.next().flatten();
            let Some((query_key, query)) = row.and_then(|key| Some((key, self.books.queries.get_mut(key)?)))
            else {
                continue;
            };
            let is_exact = job.model == query.model;
            let own = query.attempts.iter_mut().find(|own| own.running().is_some_and(|(job, ..)| job == key));
            let Some(attempt) = own else { continue };
            match output {
                Some(output) if is_exact => {
                    let by = if job.why.is_first() { By::Model } else { By::Copy };
                    self.blame(now, query_key, job.instance);
                    if job.why == Why::Hedge {
                        self.books.models[job.model].counters.hedges_won += 1;
                    }
                    self.reply(now, query_key, Ok(Answer { output, by }));
                    continue;
                }
                Some(output) => {
                    attempt.state = AttemptState::Over;
                    query.offer = Some(Answer { output, by: By::StandIn });
                }
                // One bad row may have broken the whole batch, so each is tried alone.
                None if is_batch && failure == Failure::Model => {
                    attempt.state = AttemptState::Over;
                    query.alone = true;
                }
                None => {
                    attempt.state = AttemptState::Failed { instance: job.instance, at: now, failure };
                }
            }
            self.mark(query_key);
        }
    }

    /// An instance answered a query at which the model failed elsewhere: those instances are at fault.
    fn blame(&mut self, now: Time, key: QueryKey, right: InstanceKey) {
        let query = &self.books.queries[key];
        let failed = query.exact().filter_map(|attempt| match attempt.state {
            AttemptState::Failed { instance, failure: Failure::Model, .. } => Some(instance),
            _ => None,
        });
        let failed: SmallVec<[InstanceKey; 1]> = failed.filter(|at| *at != right).collect();
        let model = query.model;
        failed.into_iter().for_each(|at| self.failed(now, at, model, Failure::Model));
    }

    /// Answers a query, or says why it has no answer.
    pub(crate) fn reply(&mut self, now: Time, key: QueryKey, result: Result<Answer<O>, Reject>) {
        let stood_in = result.as_ref().is_ok_and(|answer| answer.by == By::StandIn);
        // While nothing else answers, the bound does not count.
        let is_out =
            stood_in && self.books.queries.get(key).is_some_and(|query| self.books.is_out(query.model, now));
        let Some(query) = self.end(key) else { return };
        let model = &mut self.books.models[query.model];
        if result.as_ref().is_ok_and(|answer| !answer.by.is_approximate()) {
            model.answered = now;
        }
        if !query.background {
            model.counters.reply(&result, is_out);
        }
        if result.is_ok() && model.settings.policy.stand_in.is_some() {
            if !is_out {
                model.bound.note(now, stood_in);
            }
            if let Accept::AtMost(most) = query.accept {
                model.accounts.entry(most).or_insert_with(Bound::without_floor).note(now, stood_in);
            }
        }
        self.actions.push(Action::Reply { query: key, result });
    }

    /// Removes a query: its wanted attempts leave the line, and its running ones are cancelled.
    pub(crate) fn end(&mut self, key: QueryKey) -> Option<Query<P, O>> {
        let query = self.books.queries.remove(key)?;
        for Attempt { model, why, state } in &query.attempts {
            match *state {
                AttemptState::Wanted => {
                    self.leave_line(*model, *why, (query.payer, query.background), false);
                }
                AttemptState::Running { job, instance, .. } => {
                    let Some(of) = self.books.jobs.get_mut(job) else { continue };
                    of.rows.iter_mut().filter(|row| **row == Some(key)).for_each(|row| *row = None);
                    if of.rows.iter().all(Option::is_none) {
                        self.books.models[*model].counters.stopped += 1;
                        self.actions.push(Action::Cancel { job, instance });
                    }
                }
                AttemptState::Failed { .. } | AttemptState::Over => {}
            }
        }
        Some(query)
    }
}
