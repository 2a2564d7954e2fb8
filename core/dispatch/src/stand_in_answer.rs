//! A stand-in's answers: kept until the prediction comes, or is so late that clients are given them.
//!
//! Problem: an approximation at hand is worth most for the slowest queries and nothing for the others, which will have their
//! prediction in a moment; and an operator wants to say how many of all answers may be approximate. How many queries are
//! late is not known beforehand: a straggler in a hundred, half of all where service times vary widely, a burst of them
//! where instances share a disturbance.
//!
//! Choice: a query is given one when it is older than 1.15 usual times, and that wait is stretched as approximations near
//! their bound (see `share`): while few were given, hardly; at half of what is allowed by a tenth; near all of it without
//! limit. So those that are given go to ever slower queries, a burst finds room, and where service times vary widely the
//! wait comes to rest where the share that is slower fits under the bound. A client that asks for less waits at least for
//! the quantile of latency that leaves its share. What a query would have waited counts for that also where it was given
//! something else, when the prediction comes after all: else every wait would look short.
//!
//! Confidence is asked for when an answer would be given, not before: most never are.
//!
//! Rejected: the first answer of the two (more than nine in ten would be approximate, for nothing); a fixed wait (what is
//! late at one load is usual at another); the quantile of latency that leaves the bound's share, for all (it follows a burst
//! too slowly, and spends the bound on queries that are hardly late); an end to approximations at the bound alone (they
//! would go to whoever is first, and the slowest would find none left).
//!
//! Cold start: until enough times are known, the wait is a setting.

use std::time::Duration;

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::health::Reason;
use super::job::{Job, Twin};
use super::outcome::Ask;
use super::pool::Pool;
use super::query::{Aid, Keys, Query};
use super::time::times;
use super::{
    Accept, Action, Answer, Failure, JobId, Judgement, Output, Pair, Payer, QueryId, Time, Unsure, Usual,
};

/// What is held back because too many are approximate is looked at again after so much of the usual time.
const LOOK_AGAIN: f64 = 0.25;
const LEAST: Duration = Duration::from_millis(1);

impl Dispatcher {
    /// A stand-in's outputs are in.
    pub(super) fn stood_in(&mut self, key: Key<Job>, job: &Job) {
        let id = key.id();
        self.shelf.open(id, job.pool, job.instance);
        let pool = &mut self.pools[job.pool];
        if let Some(stand_ins) = &mut pool.stand_ins {
            stand_ins.costs.note(job.rows.len(), self.now.since(job.started));
        }
        for (row, query) in job.rows.iter().enumerate() {
            match self.queries.get_mut(*query) {
                Some(waiting) => {
                    self.shelf.hold(id);
                    waiting.aid = Aid::In(Output { job: id, row: row as u32 });
                }
                None => self.pools[job.pool].counters.stand_ins_wasted += 1,
            }
        }
        for twin in &job.twins {
            self.shelf.hold(id);
            let stand_in = Output { job: id, row: twin.row };
            self.ask_check(Pair { prediction: twin.other, stand_in });
        }
        job.rows.iter().for_each(|query| self.answer_from_stand_in(*query));
        self.let_go(id);
    }

    /// A stand-in's job failed. Another may do better, unless the queries are at fault.
    pub(super) fn stand_in_failed(&mut self, key: Key<Job>, job: &Job, failure: Failure) {
        for query in &job.rows {
            let Some(waiting) = self.queries.get_mut(*query).filter(|query| query.aid == Aid::Runs(key))
            else {
                continue;
            };
            waiting.aid = if failure == Failure::Instance { Aid::None } else { Aid::Useless };
            self.overdue_already(*query);
            self.back_to_work(*query);
        }
    }

    /// How much longer than usual a stand-in took, as for any job; short ones are late by chance.
    pub(super) fn judge_stand_in(&mut self, job: &Job) -> Option<Reason> {
        let pool = &self.pools[job.pool];
        let (settings, took) = (&pool.settings.ejection, self.now.since(job.started));
        let usual = pool.stand_ins.as_ref()?.costs.usual(job.rows.len())?;
        let slow = took.as_secs_f64() > usual.as_secs_f64() * settings.slow_factor.get();
        let slow = slow && took > pool.settings.hedge.min_delay;
        self.instances.get_mut(job.instance)?.health.answered(slow, settings)
    }

    /// Gives a query its stand-in's answer, if it is late enough; sets a timer if it is not.
    pub(super) fn answer_from_stand_in(&mut self, key: Key<Query>) {
        let Some(query) = self.queries.get(key) else { return };
        let Aid::In(output) = query.aid else { return };
        let pool = &mut self.pools[query.pool];
        let from = query.arrived + pool.stand_in_grace(query.accept);
        if from > self.now {
            self.hold_back(key, from);
            self.back_to_work(key);
        } else if pool.gives_stand_ins(query.payer, query.accept) {
            self.shelf.hold(output.job);
            self.shelf.lend(output.job);
            self.out.push(Action::Judge(query.id, output));
            self.queries[key].aid = Aid::Judged(output);
        } else {
            pool.counters.stand_ins_over_bound += 1;
            let again = pool
                .usual_service()
                .map_or(pool.settings.stand_in.grace.cold, |usual| usual.mul_f64(LOOK_AGAIN));
            self.hold_back(key, self.now + again.max(LEAST));
            self.back_to_work(key);
        }
    }

    /// The driver has looked at a stand-in's answer.
    pub(super) fn judged(&mut self, id: QueryId, output: Output, judgement: Judgement) {
        let found = self.query_names.get(id).filter(|key| self.queries[*key].aid == Aid::Judged(output));
        if let Some(key) = found {
            self.queries[key].aid = Aid::In(output);
            self.give_or_not(key, output, judgement);
        }
        self.shelf.take_back(output.job);
        self.let_go(output.job);
    }

    fn give_or_not(&mut self, key: Key<Query>, output: Output, judgement: Judgement) {
        let query = &self.queries[key];
        let (pool_key, pool) = (query.pool, &mut self.pools[query.pool]);
        let least = pool.settings.stand_in.min_confidence.get() as f32;
        match judgement {
            // An answer that is not a class has no confidence.
            Judgement::Fit(confidence) if confidence.unwrap_or(0.0) >= least => {
                if !pool.gives_stand_ins(query.payer, query.accept) {
                    self.answer_from_stand_in(key);
                    return;
                }
                pool.counters.stand_ins_served += 1;
                let Output { job, row } = output;
                self.answer(key, Answer::StandIn { job, row, confidence });
            }
            _ => {
                pool.counters.stand_ins_unsure += 1;
                let hedges = pool.settings.stand_in.unsure == Unsure::Hedge;
                self.queries[key].aid = Aid::Useless;
                self.let_go(output.job);
                if hedges {
                    self.hedge(pool_key, Keys::from_slice(&[key]), Ask::First, None);
                }
                self.back_to_work(key);
            }
        }
    }

    /// When a query should be given its stand-in's answer, if it has one that is to come or held back: not if a duplicate
    /// would be done by then.
    pub(super) fn stand_in_expected(&self, key: Key<Query>) -> Option<Time> {
        let query = self.queries.get(key)?;
        let pool = &self.pools[query.pool];
        let (from, usual) = (query.arrived + pool.stand_in_grace(query.accept), pool.usual_service()?);
        let ready = match query.aid {
            Aid::Runs(job) => {
                let job = self.jobs.get(job)?;
                job.started + pool.stand_in_within(job.rows.len())?
            }
            Aid::In(_) | Aid::Judged(_) => self.now + LEAST,
            Aid::None | Aid::Useless => return None,
        };
        let at = ready.max(from);
        (at > self.now && at <= self.now + usual && pool.gives_stand_ins(query.payer, query.accept))
            .then_some(at)
    }

    /// A query is answered: what is known twice, or will be, is to be compared.
    pub(super) fn pair_up(&mut self, key: Key<Query>, answer: &Answer) {
        let query = &self.queries[key];
        if matches!(query.aid, Aid::In(_) | Aid::Judged(_)) && !matches!(answer, Answer::StandIn { .. }) {
            self.pools[query.pool].counters.stand_ins_wasted += 1;
        }
        match (query.aid, *answer) {
            (Aid::Runs(stand_in), Answer::Exact { job, row } | Answer::Hedged { job, row }) => {
                let Some(at) = self.jobs.get(stand_in).and_then(|job| job.row_of(key)) else { return };
                if self.shelf.hold(job) {
                    self.jobs[stand_in].twins.push(Twin {
                        row: at,
                        other: Output { job, row },
                        waited_from: None,
                    });
                }
            }
            (
                Aid::In(stand_in) | Aid::Judged(stand_in),
                Answer::Exact { job, row } | Answer::Hedged { job, row },
            ) if self.shelf.hold(job) && self.shelf.hold(stand_in.job) => {
                self.ask_check(Pair { prediction: Output { job, row }, stand_in });
            }
            (Aid::In(stand_in), Answer::StandIn { .. }) => {
                let waited_from = Some(query.arrived);
                for holder in query.jobs.clone() {
                    let Some(row) = self.jobs.get(holder).and_then(|job| job.row_of(key)) else { continue };
                    if self.shelf.hold(stand_in.job) {
                        self.jobs[holder].twins.push(Twin { row, other: stand_in, waited_from });
                    }
                }
            }
            _ => {}
        }
    }

    /// A prediction came for queries that were given their stand-in's answer.
    pub(super) fn came_after_all(&mut self, key: Key<Job>, job: &Job) {
        for twin in &job.twins {
            if let Some(arrived) = twin.waited_from {
                self.pools[job.pool].response.add(self.now.since(arrived));
            }
            if self.shelf.hold(key.id()) {
                let prediction = Output { job: key.id(), row: twin.row };
                self.ask_check(Pair { prediction, stand_in: twin.other });
            } else {
                self.let_go(twin.other.job);
            }
        }
    }

    /// Asks the driver to compare two outputs that were held for it.
    fn ask_check(&mut self, pair: Pair) {
        self.shelf.lend(pair.prediction.job);
        self.shelf.lend(pair.stand_in.job);
        self.out.push(Action::Check(pair));
    }

    /// A query no longer waits for its stand-in.
    pub(super) fn leave_stand_in(&mut self, aid: Aid) {
        match aid {
            Aid::None | Aid::Useless => {}
            Aid::In(output) | Aid::Judged(output) => self.let_go(output.job),
            Aid::Runs(key) => {
                let Some(job) = self.jobs.get_mut(key) else { return };
                job.waiting -= 1;
                if job.waiting == 0 && !job.dropped {
                    job.dropped = true;
                    self.pools[job.pool].counters.dropped += 1;
                    self.out.push(Action::Drop(key.id()));
                }
            }
        }
    }

    /// One fewer reads the outputs of a job.
    pub(super) fn let_go(&mut self, job: JobId) {
        if self.shelf.let_go(job) {
            self.out.push(Action::Release(job));
        }
    }

    /// A query that lost its stand-in may be late by now.
    fn overdue_already(&mut self, key: Key<Query>) {
        let query = &self.queries[key];
        let pool = &self.pools[query.pool];
        let late = pool.late_for_stand_in().is_some_and(|after| query.arrived + after <= self.now);
        if late {
            self.overdue(key);
        }
    }
}

impl Pool {
    /// How long after its arrival a query waits for its prediction before a stand-in's answer will do.
    fn stand_in_grace(&self, accept: Accept) -> Duration {
        let grace = &self.settings.stand_in.grace;
        let usual = self.usual_response().filter(|_| grace.of == Usual::Median);
        let least = usual.map_or_else(
            || self.policy.grace(self.response.reading()),
            |usual| times(usual, grace.factor.get()),
        );
        let least = times(least, self.thrift());
        match accept {
            Accept::AtMost(thousandths) if self.response.reading().is_some() => {
                least.max(self.response.quantile(1.0 - f64::from(thousandths) / 1000.0))
            }
            _ => least,
        }
    }

    /// By how much everything about stand-ins comes later, as approximate answers near their bound.
    pub(super) fn thrift(&self) -> f64 {
        self.stand_ins.as_ref().map_or(1.0, |stand_ins| stand_ins.bound.thrift())
    }

    /// Whether one more query may be given a stand-in's answer.
    pub(super) fn gives_stand_ins(&self, payer: Payer, accept: Accept) -> bool {
        self.stand_ins
            .as_ref()
            .is_some_and(|stand_ins| !stand_ins.withheld && stand_ins.bound.has_room(payer, accept))
    }
}
