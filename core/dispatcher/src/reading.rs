//! Readings of models and instances for metrics, the console and operators. They decide nothing.

use std::time::Duration;

use crate::Time;
use crate::condition::Condition;
use crate::counters::Counters;
use crate::dispatcher::Dispatcher;
use crate::instance::InstanceKey;
use crate::model::ModelKey;
use crate::query::Why;

/// How a model is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelReading {
    /// What happened so far.
    pub counters: Counters,
    /// Queries that wait for their first attempt.
    pub queued: u32,
    /// Runs of this model.
    pub running: u32,
    /// Those of them that are no copies.
    pub busy: u32,
    /// Its instances.
    pub members: u32,
    /// Those in service.
    pub usable_instances: u32,
    /// The slots of those in service.
    pub slots: u32,
    /// The median time of a run of one row, and the time within which nine of ten end; `None` while too few are known.
    pub service: Option<[Duration; 2]>,
    /// The age at which the rest of such a run exceeds a new one.
    pub late_after: Option<Duration>,
    /// Copies that the budget allows now, and at most.
    pub hedges: [f64; 2],
    /// Retries that the budget allows now, and at most.
    pub retries: [f64; 2],
    /// Answers of the stand-in in the last minute, how many were allowed, and all answers; `None` without a stand-in.
    pub approximate: Option<[u32; 3]>,
    /// Whether no instance of the model answers and its stand-in does.
    pub in_outage: bool,
    /// The expected time of a stand-in's run for 1, 2, 4 and 8 rows, as a part of that of the model's run for as many; `None`
    /// while one of the two has not run.
    pub stand_in_cost: Option<[f64; 4]>,
}

/// How an instance is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstanceReading {
    /// Whether it gets queries, for any of its models.
    pub in_service: bool,
    /// What is wrong with it.
    pub condition: Condition,
    /// The time until its next trial, if it is out of service for a model.
    pub trial_in: Option<Duration>,
    /// How many times as long as at the median instance a run takes, of the model that differs most; `None` if it is as fast as
    /// the others.
    pub slower: Option<f64>,
}

/// The quantile of run times beside the median.
const HIGH: f64 = 0.9;

impl<P: Clone, O> Dispatcher<P, O> {
    /// How a model is; `None` if it is unknown.
    pub fn reading(&self, now: Time, key: ModelKey) -> Option<ModelReading> {
        let books = &self.books;
        let model = books.models.get(key)?;
        let runs = || books.jobs.values().filter(|job| job.model == key);
        let is_needed = |why| matches!(why, Why::First | Why::Retry);
        let usable = model.instances.iter().filter(|at| books.instances[**at].takes(key)).count() as u32;
        let rest = &model.times.rest;
        let usual = model.times.usual(1.0, 1).filter(|_| rest.is_known());
        let times = |part: f64| usual.map(|usual| Duration::from_nanos((usual * part) as u64));
        let stand_in = model.settings.stand_in.and_then(|key| books.models.get(key));
        let cost = |rows| {
            let expected = stand_in?.times.expected(1.0, rows)?;
            Some(expected / model.times.expected(1.0, rows)?)
        };
        let policy = model.settings.policy.stand_in;
        Some(ModelReading {
            counters: model.counters,
            queued: model.line.waiting,
            running: runs().count() as u32,
            busy: runs().filter(|job| is_needed(job.why)).count() as u32,
            members: model.instances.len() as u32,
            usable_instances: usable,
            slots: model.slots,
            service: self.service(key),
            late_after: times(rest.late).filter(|_| rest.late.is_finite()),
            hedges: model.hedges.tokens(),
            retries: model.retries.tokens(),
            approximate: policy.map(|policy| books.bounds[model.bounds].all.minute(now, policy.bound)),
            in_outage: stand_in.is_some_and(|own| own.slots > 0) && (usable == 0 || books.is_out(key, now)),
            stand_in_cost: cost(1)
                .zip(cost(2))
                .zip(cost(4).zip(cost(8)))
                .map(|((a, b), (c, d))| [a, b, c, d]),
        })
    }

    /// How an instance is; `None` if it has left.
    pub fn instance(&self, now: Time, key: InstanceKey) -> Option<InstanceReading> {
        let instance = self.books.instances.get(key)?;
        let serves = &instance.serves;
        let factors = serves.iter().map(|served| f64::from(served.factor));
        Some(InstanceReading {
            in_service: !instance.held
                && (serves.is_empty() || serves.iter().any(|served| served.health.in_service())),
            condition: instance.watch.condition,
            trial_in: serves
                .iter()
                .filter_map(|served| served.health.trial_at())
                .min()
                .map(|at| at.since(now)),
            slower: factors.max_by(f64::total_cmp).filter(|factor| *factor != 1.0),
        })
    }

    /// The queries of a model that have not run yet.
    pub fn waiting(&self, model: ModelKey) -> u32 {
        self.books.models.get(model).map_or(0, |model| model.line.waiting)
    }

    /// The median time of a model's run of one row, and the time within which nine of ten end; `None` while too few are known.
    pub fn service(&self, model: ModelKey) -> Option<[Duration; 2]> {
        let times = &self.books.models.get(model)?.times;
        let usual = times.usual(1.0, 1).filter(|_| times.rest.is_known())?;
        let part = |quantile| Duration::from_nanos((usual * times.rest.quantile(quantile)) as u64);
        Some([part(0.5), part(HIGH)])
    }

    /// Whether an instance gets queries for a model.
    pub fn takes(&self, key: InstanceKey, model: ModelKey) -> bool {
        self.books.instances.get(key).is_some_and(|own| own.takes(model))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, End, Failure, InstanceSpec, JobKey, ModelSettings, Policy, QueryKey, Submission};

    struct Scene {
        dispatcher: Dispatcher<(), ()>,
        model: ModelKey,
        stand_in: ModelKey,
        now: Time,
        /// Runs that have not ended, the oldest first.
        runs: Vec<(JobKey, InstanceKey, Why)>,
    }

    impl Scene {
        fn new(settings: ModelSettings) -> Self {
            let mut dispatcher = Dispatcher::default();
            let stand_in = dispatcher.add_model(ModelSettings::default());
            let model = dispatcher.add_model(ModelSettings { stand_in: Some(stand_in), ..settings });
            Self { dispatcher, model, stand_in, now: Time::ZERO, runs: Vec::new() }
        }

        fn join(&mut self, models: &[ModelKey]) -> InstanceKey {
            let spec = InstanceSpec::new(models.to_vec(), 1);
            let key = self.dispatcher.join(self.now, &spec);
            self.look();
            key
        }

        fn query(&mut self, background: bool) -> QueryKey {
            let deadline = self.now + Duration::from_secs(10);
            let query = Submission { background, ..Submission::new(self.model, (), deadline) };
            let key = self.dispatcher.submit(self.now, query);
            self.look();
            key
        }

        /// The oldest run ends after so many milliseconds, with an answer or a failure.
        fn end(&mut self, millis: u64, failure: Option<Failure>) {
            self.pass(millis);
            let (job, ..) = self.runs.remove(0);
            let answered = || End::Answered([Some(())].into_iter().collect());
            self.dispatcher.ended(self.now, job, failure.map_or_else(answered, End::Failed));
            self.look();
        }

        fn pass(&mut self, millis: u64) {
            let until = self.now + Duration::from_millis(millis);
            while let Some(at) = self.dispatcher.next_tick().filter(|at| *at <= until) {
                self.now = at.max(self.now);
                self.dispatcher.tick(self.now);
                self.look();
            }
            self.now = until;
        }

        fn look(&mut self) {
            for action in self.dispatcher.actions() {
                match action {
                    Action::Run { job, instance, why, .. } => self.runs.push((job, instance, why)),
                    Action::Cancel { job, .. } => self.runs.retain(|(own, ..)| *own != job),
                    _ => {}
                }
            }
        }

        fn read(&self) -> ModelReading {
            self.dispatcher.reading(self.now, self.model).expect("it is known")
        }
    }

    #[test]
    fn model_says_what_waits_runs_and_is_usual() {
        let mut scene = Scene::new(ModelSettings { policy: Policy::NONE, ..ModelSettings::default() });
        let first = scene.join(&[scene.model]);
        scene.join(&[scene.model]);
        let cold = scene.read();
        assert_eq!((cold.service, cold.late_after, cold.stand_in_cost), (None, None, None));
        for _ in 0..80 {
            scene.query(false);
            scene.end(20, None);
        }
        let [median, high] = scene.read().service.expect("enough have run");
        assert!((18..=22).contains(&median.as_millis()) && (18..=22).contains(&high.as_millis()), "{high:?}");
        for _ in 0..3 {
            scene.query(false);
        }
        let reading = scene.read();
        assert_eq!((reading.queued, reading.running, reading.busy), (1, 2, 2));
        assert_eq!((reading.members, reading.usable_instances, reading.slots), (2, 2, 2));
        assert_eq!(reading.counters.unanswered, 3);
        scene.dispatcher.hold(scene.now, first, true);
        assert_eq!((scene.read().members, scene.read().usable_instances, scene.read().slots), (2, 1, 1));
        assert!(!scene.dispatcher.takes(first, scene.model));
    }

    #[test]
    fn instance_says_when_it_is_tried_and_how_slow_it_is() {
        let mut scene = Scene::new(ModelSettings { policy: Policy::NONE, ..ModelSettings::default() });
        let both = [scene.join(&[scene.model]), scene.join(&[scene.model])];
        for _ in 0..40 {
            scene.query(false);
            while let Some((_, at, _)) = scene.runs.first() {
                let millis = if *at == both[1] { 60 } else { 20 };
                scene.end(millis, None);
            }
        }
        let read =
            |scene: &Scene, at: usize| scene.dispatcher.instance(scene.now, both[at]).expect("it is there");
        assert_eq!(read(&scene, 0).slower, None);
        assert!(
            read(&scene, 1).slower.is_some_and(|slower| (2.5..4.5).contains(&slower)),
            "{:?}",
            read(&scene, 1)
        );
        assert!(
            scene.dispatcher.takes(both[1], scene.model) && !scene.dispatcher.takes(both[1], scene.stand_in)
        );
        while read(&scene, 0).in_service {
            if scene.runs.is_empty() {
                scene.query(false);
            }
            let failure = (scene.runs[0].1 == both[0]).then_some(Failure::Unsent);
            scene.end(20, failure);
        }
        let reading = read(&scene, 0);
        assert_eq!(
            (reading.trial_in, reading.condition),
            (Some(Duration::from_millis(250)), Condition::Unreachable)
        );
        assert!(!scene.dispatcher.takes(both[0], scene.model));
        assert_eq!(scene.read().counters.out_failing, 1);
    }

    #[test]
    fn stand_in_answers_in_an_outage_and_has_a_cost() {
        let mut scene = Scene::new(ModelSettings { policy: Policy::STAND_IN, ..ModelSettings::default() });
        let own = scene.join(&[scene.model]);
        for _ in 0..80 {
            scene.query(false);
            scene.end(20, None);
        }
        assert!(!scene.read().in_outage);
        scene.join(&[scene.stand_in]);
        scene.query(false);
        scene.pass(24);
        scene.runs.remove(0); // it hangs
        scene.end(4, None);
        let reading = scene.read();
        assert_eq!((reading.counters.stood_in, reading.counters.by_stand_in), (1, 1));
        assert_eq!(reading.approximate, Some([1, 20, 81]));
        let cost = reading.stand_in_cost.expect("both have run");
        assert!(cost.iter().all(|cost| (0.2..0.3).contains(cost)), "{cost:?}");
        scene.pass(200);
        assert!(scene.read().in_outage);
        scene.dispatcher.leave(scene.now, own);
        assert!(scene.read().in_outage);
    }

    #[test]
    fn counters_name_what_limits_kept_back() {
        let none = crate::BudgetSettings { ratio: 0.0, burst: 0 };
        let settings =
            ModelSettings { policy: Policy::HEDGE, hedges: none, retries: none, ..ModelSettings::default() };
        let mut scene = Scene::new(settings);
        scene.join(&[scene.model]);
        scene.join(&[scene.model]);
        for _ in 0..80 {
            scene.query(false);
            scene.end(20, None);
        }
        scene.query(false);
        (0..5).for_each(|_| scene.pass(20));
        assert_eq!(
            (scene.read().counters.hedges_refused, scene.read().counters.hedged),
            (1, 0),
            "once a query"
        );
        scene.end(1, Some(Failure::Instance));
        let counters = scene.read().counters;
        assert_eq!((counters.retries_refused, counters.retried, counters.unanswered), (1, 0, 0));
        let background = scene.query(true);
        scene.dispatcher.cancel(scene.now, background);
        let query = scene.query(false);
        scene.dispatcher.cancel(scene.now, query);
        let counters = scene.read().counters;
        assert_eq!((counters.submitted, counters.cancelled, counters.unanswered), (82, 1, 0));
        assert_eq!((counters.jobs, counters.batches, counters.stopped), (83, 83, 2));
    }

    #[test]
    fn answer_of_a_copy_of_a_late_query_is_counted() {
        let mut scene = Scene::new(ModelSettings::default());
        scene.join(&[scene.model]);
        scene.join(&[scene.model]);
        for _ in 0..80 {
            scene.query(false);
            scene.end(20, None);
        }
        scene.query(false);
        scene.pass(60);
        scene.runs.remove(0); // the late run
        scene.end(20, None);
        let counters = scene.read().counters;
        assert_eq!((counters.hedged, counters.hedges_won, counters.stopped), (1, 1, 1));
    }
}
