//! Where an attempt runs: on the instance at which it is expected to end first. The same comparison says when a copy pays
//! ([`Books::copy_at`]), when a query that waits gives up, and whether a model is out ([`Books::is_out`]).
//!
//! Problem: an idle instance that is 2.4 times slower answers a query after 48 ms. A faster one that is busy for 8 ms more
//! answers it after 28 ms. With five queries in line it does not, and the slow instance should help.
//!
//! Choice: a free instance as fast as the fastest takes the first query in line. A free slower instance takes the last
//! one, because the faster instances serve the older queries sooner. With n queries in line it stays idle while n faster instances
//! would each end one of them sooner. A query waits for a faster instance at most for one run of
//! the slow one and never past its deadline: the faster instances may hang or serve other models. After that, or while more queries
//! wait than the instances run, the slow instance takes the first one too. A job whose rest is unknown or infinite makes its
//! instance no faster one.
//!
//! Other rules are elsewhere: an instance that several frontends share has room only for what it has granted (`asks`); copies, stand-ins
//! and background leave the last free instances to shares that reserved some (`Dispatcher::is_reserved`); further attempts go far from
//! the others (`site`); background needs an idle instance (`Dispatcher::find_idle`); and where no instance in service has room, a query
//! may try one that is out (`Dispatcher::find`).
//!
//! **An instance with a job older than any run before gets no further job while another has room**, unless it answers others
//! beside it. It may hang, and an instance with several slots would collect queries. The same holds for an instance of which a
//! model fails, for queries that are sent once: those that may be repeated show whether it works again.
//!
//! Rejected: a factor above which an instance is avoided (at 0.7 of the capacity slow instances are needed, at half of it
//! they are not); the oldest query for the slow instance (it would get the longest run); a copy as soon as a run is late
//! (a copy of 20 ms for a rest of 7 ms is wasted, and makes others wait).

use std::time::Duration;

use slotmap::SlotMap;
use smallvec::SmallVec;

use crate::Time;
use crate::bound::{Bounds, BoundsKey};
use crate::instance::{Instance, InstanceKey, Job, Served};
use crate::model::{COLD_HEDGE, Model, ModelKey};
use crate::policy::Placement;
use crate::query::{Attempt, JobKey, Query, QueryKey, Reject};

/// The books: the models, their bounds, instances, queries and jobs.
#[derive(Debug)]
pub(crate) struct Books<P, O> {
    pub(crate) models: SlotMap<ModelKey, Model>,
    pub(crate) bounds: SlotMap<BoundsKey, Bounds>,
    pub(crate) instances: SlotMap<InstanceKey, Instance>,
    pub(crate) queries: SlotMap<QueryKey, Query<P, O>>,
    pub(crate) jobs: SlotMap<JobKey, Job>,
}

/// Whether an instance may run an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Yes,
    /// Not before this moment.
    From(Time),
    /// Not until an event changes the instance or the query.
    No,
}

/// The rest of a run of another frontend, as a part of a run: it began at an unknown time.
const UNSEEN: f64 = 0.5;

/// The time for which a retry avoids the instance that failed it, while no run is known.
const AVOIDS: Duration = Duration::from_millis(50);

/// The shortest wait for a faster instance, as a part of the run on the slow one: a look that is due at once never ends.
const LEAST_WAIT: f64 = 1.0 / 32.0;

/// The time that a query must have left for a run on the slow instance, in such runs.
const MARGIN: f64 = 1.25;

/// The share of busy slots that counts at most for the wait that a copy adds: beyond it, waits have no mean.
const FULL: f64 = 0.95;

/// A copy that does not pay is considered again after this part of the run's age, at the latest.
const AGAIN: f64 = 1.0 / 8.0;
const LEAST_AGAIN: f64 = 100_000.0;

/// Before enough runs are known, a run is late after so many usual ones.
const COLD_FACTOR: f64 = 2.0;

impl<P, O> Books<P, O> {
    /// Whether an instance may run an attempt of a query on a model now.
    pub(crate) fn suits(&self, model: ModelKey, query: &Query<P, O>, at: InstanceKey, now: Time) -> Fit {
        let instance = &self.instances[at];
        if !instance.takes(model) || !self.has_room(model, at) || query.is_at(at) {
            return Fit::No;
        }
        self.avoids(model, query, at).filter(|until| *until > now).map_or(Fit::Yes, Fit::From)
    }

    /// Until when a query avoids an instance that failed it.
    pub(crate) fn avoids(&self, model: ModelKey, query: &Query<P, O>, at: InstanceKey) -> Option<Time> {
        let failed = query.failed_at(at).filter(|_| self.models[model].instances.len() > 1)?;
        let usual = self.run_at(model, at, query.shape.size);
        Some(usual.map_or_else(|| failed + AVOIDS, |usual| failed.later(usual)))
    }

    pub(crate) fn served(&self, model: ModelKey, at: InstanceKey) -> Option<&Served> {
        self.instances.get(at)?.of(model)
    }

    /// The expected nanoseconds of a new run of so much work at an instance.
    fn run_at(&self, model: ModelKey, at: InstanceKey, work: u32) -> Option<f64> {
        self.models[model].times.expected(self.served(model, at)?.factor, work)
    }

    /// The expected nanoseconds of a new run at the fastest instance.
    pub(crate) fn shortest(&self, model: ModelKey, work: u32) -> Option<f64> {
        let pool = &self.models[model];
        Some(pool.times.expected(1.0, work)? * f64::from(pool.fastest.exp()))
    }

    /// The expected nanoseconds until a job ends; infinite if it is older than any run before.
    fn rest_of(&self, job: &Job, now: Time) -> Option<f64> {
        let times = &self.models[job.model].times;
        let usual = times.usual(self.slowness(job).1, job.work)?;
        let age = now.nanos_since(job.began) / usual;
        Some(if times.rest.is_known() {
            usual * times.rest.after(age)
        } else if age < COLD_FACTOR {
            usual * (1.0 - age).max(0.0)
        } else {
            f64::INFINITY
        })
    }

    /// Whether an instance may start a job of a model.
    fn has_room(&self, model: ModelKey, at: InstanceKey) -> bool {
        self.instances[at].has_room() && !self.is_full(model, at)
    }

    /// Whether an instance has as many jobs of a model as it may have.
    fn is_full(&self, model: ModelKey, at: InstanceKey) -> bool {
        let instance = &self.instances[at];
        let most = usize::from(instance.of(model).map_or(0, |served| served.at_once));
        instance.jobs.len() >= most
            && instance.jobs.iter().filter(|job| self.jobs[**job].model == model).count() >= most
    }

    /// The expected nanoseconds until an instance has room for a model.
    fn wait_at(&self, model: ModelKey, at: InstanceKey, now: Time) -> Option<f64> {
        let instance = &self.instances[at];
        if self.has_room(model, at) {
            return Some(0.0);
        }
        if instance.grants == Some(0) && instance.jobs.is_empty() {
            let model = instance.serves.first()?.model;
            return Some(UNSEEN * self.run_at(model, at, 1)?);
        }
        let is_full = self.is_full(model, at);
        let jobs = instance.jobs.iter().map(|job| &self.jobs[*job]);
        let rests =
            jobs.filter(|job| !is_full || job.model == model).filter_map(|job| self.rest_of(job, now));
        rests.min_by(f64::total_cmp)
    }

    /// Whether an instance has a job that is older than any run before, and answers nothing beside it.
    pub(crate) fn may_hang(&self, at: InstanceKey, now: Time) -> bool {
        let instance = &self.instances[at];
        let jobs = instance.jobs.iter().map(|job| &self.jobs[*job]);
        let mut overdue = jobs.take_while(|job| self.rest_of(job, now).is_some_and(f64::is_infinite));
        overdue.any(|job| !instance.watch.answers_beside(now, job.began))
    }

    /// Whether a query should rather run elsewhere: the instance may hang, or the query is sent once and a model fails there.
    pub(crate) fn is_doubtful(&self, model: ModelKey, at: InstanceKey, now: Time) -> bool {
        let fails = || self.instances[at].serves.iter().any(|served| served.health.trouble.is_some());
        self.may_hang(at, now) || (!self.models[model].settings.policy.repeats && fails())
    }

    /// Whether a query runs, and each run is older than any before.
    pub(crate) fn hangs(&self, query: &Query<P, O>, now: Time) -> bool {
        let mut runs = query.attempts.iter().filter_map(Attempt::running).peekable();
        runs.peek().is_some()
            && runs.all(|(job, ..)| self.rest_of(&self.jobs[job], now).is_some_and(f64::is_infinite))
    }

    /// Until when the queries in line should wait for faster instances instead of running on this free, slow one.
    pub(crate) fn waits_for_faster(
        &self,
        model: ModelKey,
        own: InstanceKey,
        query: &Query<P, O>,
        now: Time,
    ) -> Option<Time> {
        let pool = &self.models[model];
        let slower = self.served(model, own)?.slower;
        let here = self.run_at(model, own, query.shape.size)?;
        let latest = self.waits_until(model, query, own).filter(|latest| *latest > now)?;
        let place = (pool.line.waiting.max(1) - 1) as usize;
        let mut sooner: SmallVec<[(f64, f64); 16]> = SmallVec::new();
        for other in &pool.instances {
            let instance = &self.instances[*other];
            let is_faster = instance.of(model).is_some_and(|served| served.slower < slower);
            if *other == own || !instance.takes(model) || !is_faster || query.is_at(*other) {
                continue;
            }
            if let Some((wait, run)) = self.end_at(model, *other, query, now)
                && wait + run < here
            {
                sooner.push((wait + run, wait));
            }
        }
        if sooner.len() <= place {
            return None;
        }
        let (_, (_, wait), _) = sooner.select_nth_unstable_by(place, |one, other| one.0.total_cmp(&other.0));
        Some(now.later(wait.max(here * LEAST_WAIT).max(1.0)).min(latest))
    }

    /// Until when a query waits for a faster instance than this slow one; `None` if it does not, because more queries wait than the
    /// instances run or because the time of a run here is unknown.
    pub(crate) fn waits_until(&self, model: ModelKey, query: &Query<P, O>, own: InstanceKey) -> Option<Time> {
        let here =
            self.run_at(model, own, query.shape.size).filter(|_| !self.models[model].is_backlogged())?;
        Some(query.arrived.later(here).min(latest_start(query, here)))
    }

    /// The expected wait of a query at an instance, and its run there.
    fn end_at(&self, model: ModelKey, at: InstanceKey, query: &Query<P, O>, now: Time) -> Option<(f64, f64)> {
        Some((self.wait_at(model, at, now)?, self.run_at(model, at, query.shape.size)?))
    }

    /// From when on a copy of a query is wanted: now, or when to ask again.
    ///
    /// A copy saves the expected rest of the attempt that ends first. It costs the wait and the run on the best other
    /// instance, and the wait that it adds to later queries. A run on a slow instance was placed there knowing how long it
    /// takes, so until it is overdue a copy must save its own run once more. If no other instance can run it, or its time there is
    /// unknown, a late query wants a copy all the same: it starts at the first instance that can.
    pub(crate) fn copy_at(&self, query: &Query<P, O>, now: Time) -> Time {
        let running: SmallVec<[&Job; 3]> =
            query.exact().filter_map(Attempt::running).map(|(job, ..)| &self.jobs[job]).collect();
        // A further copy only once all attempts are late.
        let Some(pays) = running.iter().map(|job| self.pays_at(job)).max() else { return Time::MAX };
        if pays > now {
            return pays;
        }
        let rest = |job: &&Job| self.rest_of(job, now).unwrap_or(f64::INFINITY);
        let first = running.iter().min_by(|one, other| rest(one).total_cmp(&rest(other)));
        let (Some(first), Some((wait, run))) = (first, self.elsewhere(query, now)) else { return now };
        let age = now.nanos_since(first.began);
        let pool = &self.models[query.model];
        let (slower, factor) = self.slowness(first);
        let usual = pool.times.usual(factor, first.work).unwrap_or(age);
        let knowingly = !pool.is_fast(slower) && age < usual;
        let cost = wait + run * (1.0 + f64::from(u8::from(knowingly)) + self.congestion(query, now));
        if rest(first) > cost {
            return now;
        }
        let next = usual * pool.times.rest.exceeds(cost / usual, age / usual);
        let least = now.later(LEAST_AGAIN);
        first.began.later(next).max(least).min(now.later((age * AGAIN).max(LEAST_AGAIN)))
    }

    /// How much slower than usual a job's instance is, as a logarithm, and the job itself, as a factor.
    fn slowness(&self, job: &Job) -> (f32, f32) {
        let served = self.served(job.model, job.instance);
        served.map_or((0.0, job.crowd), |served| (served.slower, served.factor * job.crowd))
    }

    /// The first moment at which a copy of a job may pay: its rest exceeds a run at the fastest instance.
    fn pays_at(&self, job: &Job) -> Time {
        let pool = &self.models[job.model];
        let (slower, factor) = self.slowness(job);
        let Some(usual) = pool.times.usual(factor, job.work) else {
            let doublings = u32::from(pool.cold_copies.min(8));
            return job.began + COLD_HEDGE * (1 << doublings);
        };
        let rest = &pool.times.rest;
        let age = if !rest.is_known() {
            COLD_FACTOR
        } else if pool.is_fast(slower) {
            rest.late
        } else {
            let run = rest.mean * f64::from((pool.fastest - slower).exp());
            rest.exceeds(2.0 * run, 0.0).min(rest.exceeds(run, 1.0))
        };
        job.began.later(age * usual).max(job.began + pool.settings.least_hedge_delay)
    }

    /// The wait and the run at the instance that would end another attempt of a query first.
    fn elsewhere(&self, query: &Query<P, O>, now: Time) -> Option<(f64, f64)> {
        let pool = &self.models[query.model];
        // A free instance among the fastest ends it first.
        let is_free = |at: &&InstanceKey| {
            let instance = self.instances.get(**at);
            instance.is_some_and(|own| own.takes(query.model) && self.has_room(query.model, **at))
                && !query.is_at(**at)
        };
        if let Some(at) = pool.free.fast.iter().find(is_free)
            && pool.settings.policy.placement == Placement::BySpeed
        {
            return Some((0.0, self.run_at(query.model, *at, query.shape.size)?));
        }
        let takes = |at: &InstanceKey| self.instances[*at].takes(query.model);
        let others = pool.instances.iter().filter(|at| takes(at) && !query.is_at(**at));
        let ends = others.filter_map(|at| self.end_at(query.model, *at, query, now));
        ends.min_by(|one, other| (one.0 + one.1).total_cmp(&(other.0 + other.1)))
    }

    /// The wait that a run adds to later queries, in runs. While a share `u` of `n` slots is needed, a run delays the
    /// queries that arrive until a slot is free again: `u / (1 - u)` of them, each by `1 / n` of a run. The share is
    /// that of the arrivals and not of the busy slots, which stragglers fill too.
    fn congestion(&self, query: &Query<P, O>, now: Time) -> f64 {
        let busy = self.load(query.model, query.shape.size, now).min(FULL);
        busy / (1.0 - busy) / self.models[query.model].capacity.max(1.0)
    }

    /// The share of a model's slots that its arrivals need.
    pub(crate) fn load(&self, model: ModelKey, size: u32, now: Time) -> f64 {
        let pool = &self.models[model];
        let usual = pool.times.expected(1.0, size).unwrap_or_default();
        pool.arrivals.per_nano(now) * usual / pool.capacity.max(1.0)
    }

    /// Whether a model's instances answer nothing: none gave a prediction for two usual times, and each that is in service fails or
    /// has a job older than any run before, or there is none. It is a predicate and not a state, so nothing has to notice its end.
    pub(crate) fn is_out(&self, key: ModelKey, now: Time) -> bool {
        let model = &self.models[key];
        let Some(usual) = model.times.usual(1.0, 1) else { return false };
        let fails = |at| self.served(key, at).is_some_and(|served| served.health.trouble.is_some());
        let answers =
            |at: InstanceKey| self.instances[at].takes(key) && !fails(at) && !self.may_hang(at, now);
        now.nanos_since(model.answered) > SILENT * usual && !model.instances.iter().any(|at| answers(*at))
    }

    /// Whether a model's stand-in answers beyond the bound, because nothing else answers.
    pub(crate) fn is_exempt(&self, key: ModelKey, now: Time) -> bool {
        let policy = self.models[key].settings.policy.stand_in;
        policy.is_some_and(|policy| policy.in_outage) && self.is_out(key, now)
    }

    /// From when on a waiting query cannot be answered, and why. Under overload each query would otherwise start when only a run
    /// is left, and many runs are longer: with deadlines of five runs and a load of 1.2, 79 % of the queries would be
    /// answered in time instead of 84 %.
    pub(crate) fn gives_up(&self, query: &Query<P, O>) -> (Time, Reject) {
        let model = &self.models[query.model];
        if let Some(since) = model.deserted {
            return (query.arrived.max(since) + model.settings.instance_wait, Reject::NoInstance);
        }
        let work = query.shape.size.saturating_mul(model.batch);
        let run = if model.is_backlogged() { self.shortest(query.model, work) } else { None };
        (run.map_or(Time::MAX, |run| latest_start(query, run)), Reject::Overload)
    }

    /// Whether a model that is out of service at an instance may run there to show that it works: beside jobs of other models, unless
    /// the instance is silent, because then these hang.
    pub(crate) fn may_be_tried(&self, model: ModelKey, at: InstanceKey) -> bool {
        let instance = &self.instances[at];
        let is_silent = instance.of(model).is_some_and(|served| served.health.is_silent());
        let blocks = |job: &JobKey| is_silent || self.jobs[*job].model == model;
        instance.jobs.len() < usize::from(instance.slots) && !instance.jobs.iter().any(blocks)
    }

    /// Whether an instance should show with a copy how fast it is, if it is slow and idle, or whether it works, if its trial is due.
    pub(crate) fn is_unexplored(&self, model: ModelKey, at: InstanceKey, now: Time) -> bool {
        let (instance, pool) = (&self.instances[at], &self.models[model]);
        let Some(served) = instance.of(model).filter(|_| !instance.held) else { return false };
        if !served.health.in_service() {
            return served.health.wants_trial(now) && self.may_be_tried(model, at);
        }
        if !instance.jobs.is_empty() {
            return false;
        }
        let run = pool.times.usual(served.factor, 1).unwrap_or_default();
        let pause =
            served.ran_at.later(f64::from(served.speed.runs.min(RUNS)) * run).max(served.ran_at + EXPLORES);
        served.speed.may_be_well() || pause <= now
    }
}

/// Usual times without an answer after which a model's instances may all be hung.
const SILENT: f64 = 2.0;

/// A slow instance is explored after this pause, and after as many of its runs as its speed rests on, at most so many: what two
/// runs said is soon asked again, and one that is slow for good costs a thirteenth of its time.
const EXPLORES: Duration = Duration::from_millis(125);
const RUNS: f32 = 12.0;

/// The last moment at which a run of so many nanoseconds should begin; never, if it cannot be in time anyhow.
fn latest_start<P, O>(query: &Query<P, O>, run: f64) -> Time {
    let latest = query.deadline.earlier(MARGIN * run);
    if latest > query.arrived { latest } else { Time::MAX }
}

#[cfg(test)]
mod tests {
    use crate::policy::Policy;
    use crate::script::Script;
    use crate::{HealthSettings, InstanceSpec, ModelSettings, StandInPolicy};

    #[test]
    fn outage_is_that_no_instance_answers_for_whatever_reason() {
        let hang = "q,e,d9000 q,e,d9000 q,e,d9000".to_owned();
        let others_hang = "q,m1,d9000 q,m1,d9000 q,m1,d9000".to_owned();
        let fail: String = (160..175).map(|job| format!("q,e fi{job} ")).collect();
        let rows =
            [(hang, true), (others_hang, true), (fail, true), ("q,e,d9000 q,e,d9000".to_owned(), false)];
        for (calls, is_out) in rows {
            let of = StandInPolicy { bound: 0.0, hedge_below: 0.2, in_outage: true, at_once: false };
            let policy = Policy { stand_in: Some(of), ..Policy::ONCE };
            let mut script = Script::new(ModelSettings::default());
            let stand_in = script.models.pop();
            let own = ModelSettings { policy, stand_in, ..ModelSettings::default() };
            for settings in [own, ModelSettings { policy: Policy::NONE, ..ModelSettings::default() }] {
                script.models.push(script.dispatcher.add_model(settings));
            }
            script.play("+1");
            for job in 0..160 {
                script.play(&format!("q,m{} {} a{job}", job / 80, 20 * (job + 1)));
            }
            script.play("+1 +1");
            let apart = InstanceSpec::new(stand_in, 1);
            script.instances.push(script.dispatcher.join(script.now, &apart));
            script.play(&calls);
            script.play("3300");
            let reading = script.dispatcher.reading(script.now, script.models[0]).expect("it is known");
            assert_eq!(reading.in_outage, is_out, "{calls}");
        }
    }

    #[test]
    fn job_that_hangs_keeps_no_work_from_an_instance_that_answers_others() {
        let mut script = Script::new(ModelSettings { policy: Policy::NONE, ..ModelSettings::default() });
        script.play("+4 +4");
        let mut at_the_first = Vec::new();
        for round in 0..80 {
            // From the sixtieth round on, the first job of an odd number of jobs is never answered.
            let hung = usize::from(round >= 60);
            if round == 60 {
                assert_eq!(script.play("q,d9000"), "First 120 at 0");
            }
            let started = script.play("q,d9000 q,d9000");
            at_the_first.push(started.matches("at 0").count());
            let job = 2 * round + hung;
            script.play(&format!("{} a{job} a{}", 20 * (round + 1), job + 1));
        }
        assert_eq!(at_the_first[70..].iter().sum::<usize>(), 10);
    }

    #[test]
    fn query_that_is_sent_once_avoids_an_instance_at_which_any_model_fails() {
        let health = HealthSettings { failures: 1, ..HealthSettings::default() };
        let mut script = Script::new(ModelSettings { health, ..ModelSettings::default() });
        let once = ModelSettings { policy: Policy::ONCE, ..ModelSettings::default() };
        script.models.push(script.dispatcher.add_model(once));
        assert_eq!(script.play("+4 +4 q fi0 a1"), "First 0 at 0, Retry 0 at 1, Model answers 0");
        let seen = script.play("10 q,m1 q,m1 q,m1 q,m1");
        assert_eq!(seen, "First 1 at 1, First 2 at 1, First 3 at 1, First 4 at 1");
        script.play("-1");
        assert!(script.play("q,m1").ends_with("at 0"), "there is no other");
    }

    #[test]
    fn first_run_of_a_size_that_takes_no_time_hides_no_hung_one() {
        let mut script = Script::new(ModelSettings::default());
        script.play("+1");
        for job in 0..80 {
            script.play(&format!("q {} a{job}", 20 * (job + 1)));
        }
        script.play("q,z2 a80 q,z2 1620 a81 q,z2 1640 a82 q,z2 1660 a83 +1");
        assert_eq!(script.play("q 1860"), "First 84 at 0, Hedge 84 at 1");
    }

    #[test]
    fn query_of_a_long_line_is_given_up_when_its_run_would_hardly_be_in_time() {
        let rows = [
            ("q,d30 q,d30 q,d30 27", ""),
            ("q,d30 q,d30 q,d30 28", "4 Overload, 3 Overload"),
            ("q,d30 28", ""),
            // A deadline shorter than such a run may still be met.
            ("q,d12 q,d12 q,d12 21", ""),
        ];
        for (calls, seen) in rows {
            let mut script = Script::new(ModelSettings { policy: Policy::NONE, ..ModelSettings::default() });
            assert_eq!(script.play("+1 q 10 a0 q"), "First 0 at 0, Model answers 0, First 1 at 0");
            assert_eq!(script.play(calls), seen, "{calls}");
        }
    }
}
