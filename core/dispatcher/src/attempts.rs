//! The life of an attempt: it is wanted, starts, and ends; and the end of a query.

use smallvec::SmallVec;

use crate::Time;
use crate::condition::PATIENCE;
use crate::dispatcher::{Action, CancelReason, Dispatcher, End, Row};
use crate::instance::{InstanceKey, Job};
use crate::model::ModelKey;
use crate::query::{
    Accept, Answer, Attempt, AttemptState, By, Failure, InLine, JobKey, Query, QueryKey, Reject, Why,
};
use crate::suits::Books;

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
                of.cold_copies += u8::from(!of.times.sizes.is_known() && of.cold_copies < u8::MAX);
            }
            Why::Retry => of.retries.spend(),
            Why::First | Why::StandIn | Why::Explore | Why::Copy => {}
        }
        let line = &mut self.books.models[model].line;
        match why {
            Why::First | Why::Retry if is_background => {
                line.background_waiting += 1;
                line.background.push_back(key);
            }
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
    fn leave_line(&mut self, model: ModelKey, why: Why, of_query: InLine, started: bool) {
        let Books { models, queries, .. } = &mut self.books;
        let of = &mut models[model];
        if !started {
            of.line.leave(|key| queries.get(key).is_some_and(|query| query.wanted(model).is_some()));
        }
        let (payer, priority, background) = of_query;
        if background {
            of.line.background_waiting -= u32::from(matches!(why, Why::First | Why::Retry));
        } else if why == Why::First {
            of.line.waiting -= 1;
            of.line.first.leave(payer, priority);
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
            let of_query = query.in_line();
            self.leave_line(model, why, of_query, true);
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
            if why == Why::First && !background {
                self.explore(now, of, instance, key);
            }
        }
    }

    /// A query whose stand-in runs leaves the line of the model itself.
    pub(crate) fn withdraw(&mut self, key: QueryKey, model: ModelKey) {
        let query = &mut self.books.queries[key];
        if let Some(at) = query.wanted(model) {
            query.attempts[at].state = AttemptState::Over;
            let (why, of_query) = (query.attempts[at].why, query.in_line());
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
        let charge = self.turns.begin(payer, model, why == Why::First || why == Why::Retry);
        let here = &self.books.instances[instance];
        let beside = here.jobs.len() + 1;
        let crowd = here.concurrency.as_ref().map_or(1.0, |known| known.slower(beside));
        let job = self.books.jobs.insert(Job {
            model,
            instance,
            rows: keys.iter().map(|key| waits.then_some(*key)).collect(),
            work: size.saturating_mul(keys.len() as u32),
            why,
            payer,
            charge,
            began: now,
            beside,
            crowd,
        });
        let counters = &mut self.books.models[model].counters;
        counters.jobs += 1;
        counters.batches += u64::from(why == Why::First);
        self.books.models[model].uses += 1;
        let here = &mut self.books.instances[instance];
        here.jobs.push(job);
        here.grants = here.grants.map(|grants| grants.saturating_sub(1));
        if let Some(served) = here.of_mut(model) {
            served.ran_at = now;
        }
        if here.look == Time::MAX {
            self.look_at_instance(instance, now + PATIENCE);
        }
        self.actions.push(Action::Run { job, instance, model, why, rows });
        job
    }

    /// Shows how fast an idle slow instance is, or whether one that is out works again, with a copy of a query that has just
    /// started elsewhere.
    fn explore(&mut self, now: Time, key: ModelKey, beside: InstanceKey, query: QueryKey) {
        let model = &mut self.books.models[key];
        if !model.settings.policy.explores() {
            return;
        }
        model.started = now;
        let model = &self.books.models[key];
        let mut slow = model.free.slow.iter().map(|(_, at)| at).chain(&model.free.out);
        let Some(at) = slow.find(|at| {
            **at != beside
                && self.books.instances.contains_key(**at)
                && self.books.is_unexplored(key, **at, now)
        }) else {
            return;
        };
        let at = *at;
        self.run(now, key, Why::Explore, at, &[query], false);
        self.books.models[key].counters.explored += 1;
        self.books.instances[at].begin_trial(now, key);
    }

    /// The attempts of a job's rows end.
    pub(crate) fn attempts_ended(&mut self, now: Time, key: JobKey, job: &Job, end: End<O>) {
        let is_batch = job.rows.len() > 1;
        // What a row counts as if it has no output. An answer without one is the model's failure.
        let (outputs, failure) = match end {
            End::Answered(outputs) => (outputs, Failure::Model),
            End::Failed(failure) => (SmallVec::new(), failure),
            End::Cancelled => (SmallVec::new(), Failure::Instance),
        };
        let mut outputs = outputs.into_iter();
        for row in &job.rows {
            let output = outputs.next().flatten();
            let Some((query_key, query)) = row.and_then(|key| Some((key, self.books.queries.get_mut(key)?)))
            else {
                continue;
            };
            let is_exact = job.model == query.model;
            let repeats = self.books.models[job.model].settings.policy.repeats;
            let own = query.attempts.iter_mut().find(|own| own.running().is_some_and(|(job, ..)| job == key));
            let Some(attempt) = own else { continue };
            match output {
                Some(output) if is_exact => {
                    let is_copy = matches!(job.why, Why::Hedge | Why::Copy);
                    let by = if is_copy { By::Copy } else { By::Model };
                    self.blame(now, query_key, job.instance);
                    if job.why == Why::Hedge {
                        self.books.models[job.model].counters.hedges_won += 1;
                    }
                    self.reply(now, query_key, Ok(Answer { output, by }));
                    continue;
                }
                Some(output) => {
                    attempt.state = AttemptState::Over;
                    // The bound does not count a reconstruction, so that is kept.
                    query.offer.get_or_insert(Answer { output, by: By::StandIn });
                }
                // One bad row may have broken the whole batch, so each is tried alone.
                None if is_batch && repeats && matches!(failure, Failure::Model | Failure::Query) => {
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
        let (model, failed) = (query.model, query.model_failures());
        for at in failed.into_iter().filter(|at| *at != right) {
            self.failed(now, at, model, Failure::Model);
        }
    }

    /// Answers a query, or says why it has no answer.
    pub(crate) fn reply(&mut self, now: Time, key: QueryKey, result: Result<Answer<O>, Reject>) {
        let stood_in = result.as_ref().is_ok_and(|answer| answer.by == By::StandIn);
        let is_exempt = |query: &Query<P, O>| self.books.is_exempt(query.model, now);
        let is_out = stood_in && self.books.queries.get(key).is_some_and(is_exempt);
        let Some(query) = self.end(key, CancelReason::Outrun) else { return };
        let model = &mut self.books.models[query.model];
        if result.as_ref().is_ok_and(|answer| !answer.by.is_approximate()) {
            model.answered = now;
        }
        if !query.background {
            model.counters.reply(&result, is_out);
        }
        if result.is_ok() && model.settings.policy.stand_in.is_some() && !query.background {
            let bounds = &mut self.books.bounds[model.bounds];
            if !is_out {
                bounds.all.note(now, stood_in);
            }
            if let Accept::AtMost(most) = query.accept {
                bounds.note_client(now, query.payer, most, stood_in);
            }
        }
        self.actions.push(Action::Reply { query: key, payload: query.asked.payload, result });
    }

    /// Removes a query: its wanted attempts leave the line, and its running ones are cancelled.
    pub(crate) fn end(&mut self, key: QueryKey, reason: CancelReason) -> Option<Query<P, O>> {
        let query = self.books.queries.remove(key)?;
        self.books.models[query.model].uses -= 1;
        for Attempt { model, why, state } in &query.attempts {
            match *state {
                AttemptState::Wanted => {
                    self.leave_line(*model, *why, query.in_line(), false);
                }
                AttemptState::Running { job, instance, .. } => {
                    let Some(of) = self.books.jobs.get_mut(job) else { continue };
                    of.rows.iter_mut().filter(|row| **row == Some(key)).for_each(|row| *row = None);
                    if of.rows.iter().all(Option::is_none) {
                        self.books.models[*model].counters.stopped += 1;
                        self.actions.push(Action::Cancel { job, instance, reason });
                    }
                }
                AttemptState::Failed { .. } | AttemptState::Over => {}
            }
        }
        Some(query)
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::Policy;
    use crate::script::Script;
    use crate::{ModelSettings, Payer, ShareKey, StandInPolicy};
    use std::time::Duration;

    fn rows(rows: &[(Policy, &str, &str)]) {
        for (policy, calls, seen) in rows {
            let mut script = Script::new(ModelSettings { policy: *policy, ..ModelSettings::default() });
            assert_eq!(script.play(calls), *seen, "{calls}");
        }
    }

    #[test]
    fn reply_has_the_payload_and_says_which_run_answered() {
        rows(&[
            (Policy::NONE, "+1 q a0", "First 0 at 0, Model answers 0"),
            (Policy::NONE, "+1 +1 q fi0 a1", "First 0 at 0, Retry 0 at 1, Model answers 0"),
            (Policy::REPLICATE, "+1 +1 q a1", "First 0 at 0, Copy 0 at 1, cancel 0 Outrun, Copy answers 0"),
        ]);
    }

    #[test]
    fn rows_of_a_failed_batch_are_tried_alone() {
        let settings = ModelSettings { max_rows: 4, ..ModelSettings::default() };
        for failure in ["fm", "fq"] {
            let mut script = Script::new(settings);
            assert!(script.play("+1 q 10 a0 q q q 20 a1").ends_with("First 2+3 at 0"));
            assert_eq!(script.play(&format!("{failure}2")), "First 3 at 0");
            assert_eq!(script.play("a3"), "Model answers 3, First 2 at 0");
            assert_eq!(script.play("fq4"), "2 BadQuery");
        }
    }

    #[test]
    fn copies_and_batches_keep_their_limits() {
        let least_hedge_delay = Duration::from_millis(100);
        let mut script = Script::new(ModelSettings { least_hedge_delay, ..ModelSettings::default() });
        assert_eq!(script.play("+1 +1 q 10 a0 q 109"), "First 0 at 0, Model answers 0, First 1 at 1");
        assert_eq!(script.play("110"), "Hedge 1 at 0", "of a run that is late after 20 ms");

        let settings = ModelSettings { max_rows: 4, ..ModelSettings::default() };
        let seen = Script::new(settings).play("+1 q,z16 10 a0 q,z4 q,z4 q,z4 q,z4 20 a1");
        assert!(seen.ends_with("First 2+3 at 0"), "{seen}");
    }

    #[test]
    fn stand_in_answers_beyond_its_bound_in_outages_if_it_may() {
        for in_outage in [true, false] {
            let of = StandInPolicy { bound: 0.0, hedge_below: 0.2, in_outage, at_once: false };
            let policy = Policy { stand_in: Some(of), ..Policy::NONE };
            let mut script = Script::new(ModelSettings::default());
            let stand_in = Some(script.models[0]);
            let settings = ModelSettings { policy, stand_in, ..ModelSettings::default() };
            script.models.insert(0, script.dispatcher.add_model(settings));
            script.play("+2 +2 q 10 a0");
            let seen = script.play("q,s1,l500 q,s2,l500 q 100");
            assert_eq!(seen.contains("StandIn"), in_outage, "{seen}");
            script.play("a1 a2");
            let bounds = script.dispatcher.books.bounds.values().last().expect("the model's");
            for share in [1, 2] {
                assert!(
                    bounds.of_clients.contains_key(&(Payer::Share(ShareKey(share)), 500)),
                    "one for each payer"
                );
            }
        }
    }

    #[test]
    fn cancelled_run_was_outrun_or_its_client_is_gone() {
        rows(&[
            (Policy::NONE, "+1 q x0 c0 q", "First 0 at 0, cancel 0 Gone, First 1 at 0"),
            (Policy::NONE, "+1 q,d50 50", "First 0 at 0, cancel 0 Outrun, 0 Deadline"),
        ]);
    }
}
