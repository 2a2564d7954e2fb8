//! What the end of a run shows about its instance: its time, its speed and its health.

use smallvec::SmallVec;

use crate::Time;
use crate::dispatcher::{Action, Dispatcher, End, Models};
use crate::health::{Health, Trouble};
use crate::instance::{InstanceKey, Job, Served};
use crate::model::{ALIKE, ModelKey, SAME};
use crate::query::{Failure, JobKey};
use crate::suits::Books;

/// All speeds are compared again after so many runs, and at once if one instance becomes slow or fast.
const COMPARE_EVERY: u32 = 32;

impl<P: Clone, O> Dispatcher<P, O> {
    /// Learns from the end of a run: times, speeds and health.
    pub(crate) fn learn(&mut self, now: Time, key: JobKey, job: &Job, end: &End<O>) {
        if matches!(end, End::Answered(_)) {
            self.learn_concurrency(now, job);
        }
        let Books { models, instances, .. } = &mut self.books;
        let Some(instance) = instances.get_mut(job.instance) else { return };
        let held = instance.jobs.len();
        instance.jobs.retain(|own| *own != key);
        // Company makes a run longer, and no instance slower.
        let crowd = instance.concurrency.as_ref().map_or(Some(1.0), |known| known.between(job.beside, held));
        let nanos = now.nanos_since(job.began) / f64::from(crowd.unwrap_or(job.crowd));
        let model = &mut models[job.model];
        match end {
            End::Answered(_) => {
                model.batches.note(job.rows.len() as u32, true);
                let is_shown = |served: &Served| served.model == job.model || served.health.is_silent();
                self.back_in_service(now, job.instance, Health::answered, is_shown);
                let Books { models, instances, .. } = &mut self.books;
                let (model, instance) = (&mut models[job.model], &mut instances[job.instance]);
                let Some(served) = instance.of_mut(job.model) else { return };
                let before = served.slower;
                let expected = model.times.usual(served.factor, job.work);
                let times = model.times.usual(1.0, job.work).map_or(1.0, |usual| nanos / usual);
                let part = model.times.rest.above(times);
                if crowd.is_some() {
                    model.times.learn(&mut served.speed, job.work, nanos, expected);
                }
                instance.set_slower(job.model, model);
                instance.watch.answered(now, times as f32, part);
                let after = instance.of(job.model).map_or(before, |served| served.slower);
                model.compared += 1;
                let is_new = model.is_fast(before) != model.is_fast(after) || after < model.fastest;
                if is_new || model.compared >= COMPARE_EVERY.max(model.instances.len() as u32 / 4) {
                    self.compare(job.model);
                }
                self.examine(now, job.instance);
            }
            End::Cancelled => {
                let usual =
                    instance.of(job.model).and_then(|served| model.times.usual(served.factor, job.work));
                let Some(usual) = usual else { return };
                let is_silent = model.times.rest.is_known()
                    && model.times.rest.after(nanos / usual).is_infinite()
                    && !instance.watch.answers_beside(now, job.began);
                model.times.rest.add_cancelled(nanos / usual);
                if is_silent {
                    instance.watch.failed();
                    let taken = self.take_out(now, job.instance, job.model, Trouble::Silent);
                    self.books.models[job.model].counters.out_silent += u64::from(taken);
                    self.examine(now, job.instance);
                }
            }
            End::Failed(failure @ (Failure::Instance | Failure::Unsent)) => {
                self.failed(now, job.instance, job.model, *failure);
            }
            End::Failed(Failure::Model) if job.rows.len() > 1 => {
                model.batches.note(job.rows.len() as u32, false);
            }
            End::Failed(Failure::Model) if !model.settings.tries_again() => {
                let answered = model.answered;
                let served = instance.of_mut(job.model);
                if served.is_some_and(|served| served.health.may_have_failed(now, answered)) {
                    self.failed(now, job.instance, job.model, Failure::Model);
                }
            }
            // Another instance's answer shows who is at fault.
            End::Failed(Failure::Model | Failure::Query | Failure::Withheld) => {}
        }
    }

    /// Learns how many jobs a server of unknown kind runs best at a time.
    fn learn_concurrency(&mut self, now: Time, job: &Job) {
        let Books { models, instances, .. } = &mut self.books;
        let Some(instance) = instances.get_mut(job.instance) else { return };
        let factor = instance.of(job.model).map_or(1.0, |served| served.factor);
        let Some(known) = &mut instance.concurrency else { return };
        let Some(expected) = models[job.model].times.usual(factor, job.work) else { return };
        let times = now.nanos_since(job.began) / expected;
        known.learn(job.beside, instance.jobs.len(), instance.slots, times);
        let slots = instance.limit();
        if std::mem::replace(&mut instance.slots, slots) != slots {
            let models = instance.models();
            models.into_iter().for_each(|model| self.compare(model));
        }
    }

    /// A failure that is the instance's own.
    pub(crate) fn failed(&mut self, now: Time, key: InstanceKey, model: ModelKey, failure: Failure) {
        let settings = self.books.models[model].settings.health;
        let Some(instance) = self.books.instances.get_mut(key) else { return };
        instance.watch.failed();
        let Some(served) = instance.of_mut(model) else { return };
        if served.health.failed(now, failure, &settings) {
            let taken = self.take_out(now, key, model, Trouble::Fails(failure));
            self.books.models[model].counters.out_failing += u64::from(taken);
        }
        self.examine(now, key);
    }

    /// Compares the speeds of a model's instances.
    pub(crate) fn compare(&mut self, key: ModelKey) {
        let Books { models, instances, .. } = &mut self.books;
        let model = &mut models[key];
        model.compared = 0;
        let takes = |at: &&InstanceKey| instances.get(**at).is_some_and(|instance| instance.takes(key));
        let members: SmallVec<[InstanceKey; 16]> = model.instances.iter().filter(takes).copied().collect();
        let mut means: SmallVec<[f32; 16]> =
            members.iter().filter_map(|at| instances[*at].of(key)?.speed.mean()).collect();
        if !means.is_empty() {
            // Of an even number the faster one: half of the instances may be slow.
            let middle = (means.len() - 1) / 2;
            model.times.compare(*means.select_nth_unstable_by(middle, f32::total_cmp).1);
        }
        (model.slots, model.capacity, model.fastest) = (0, 0.0, f32::INFINITY);
        let learns = members.iter().any(|at| instances[*at].concurrency.is_some());
        model.same = if learns { ALIKE } else { SAME };
        for at in &members {
            let instance = &mut instances[*at];
            instance.set_slower(key, model);
            let Some(served) = instance.of(key) else { continue };
            let slots = instance.slots.min(served.at_once);
            model.slots += u32::from(slots);
            model.capacity += f64::from(slots) / f64::from(served.factor);
            model.fastest = model.fastest.min(served.slower);
        }
        model.fastest = if members.is_empty() { 0.0 } else { model.fastest };
        // Instances may have become fast or slow.
        let slow = model.free.slow.drain(..).map(|(_, at)| at);
        let free: SmallVec<[InstanceKey; 16]> = model.free.fast.drain(..).chain(slow).collect();
        for at in free {
            let served = instances.get(at).and_then(|instance| instance.of(key));
            if let Some(slower) = served.map(|served| served.slower) {
                model.list(at, slower);
            }
        }
        self.touch(key);
        let stand_in = self.books.models[key].settings.stand_in;
        if let Some(stand_in) = stand_in.filter(|stand_in| self.books.models.contains_key(*stand_in)) {
            self.compare(stand_in);
        }
    }

    /// Takes a model at an instance out of service for a minute, because its answers are wrong, unless too few instances would stay.
    /// Returns whether it was taken out. It returns after a trial like any other.
    pub fn distrust(&mut self, now: Time, key: InstanceKey, model: ModelKey) -> bool {
        let Some(instance) = self.books.instances.get_mut(key).filter(|own| own.of(model).is_some()) else {
            return false;
        };
        instance.watch.failed();
        let taken = self.take_out(now, key, model, Trouble::Wrong);
        self.examine(now, key);
        self.settle(now);
        taken
    }

    /// Takes a model at an instance out of service, or after a silence all of its models, unless too few instances of one of them would
    /// stay. Says whether it was in service.
    fn take_out(&mut self, now: Time, key: InstanceKey, model: ModelKey, trouble: Trouble) -> bool {
        let Books { models, instances, .. } = &mut self.books;
        let least_in_service = models[model].settings.health.least_in_service;
        let leaves = |served: &Served| match trouble {
            Trouble::Silent => served.health.in_service() || served.health.is_silent(),
            Trouble::Fails(_) | Trouble::Wrong => served.model == model,
        };
        let leaving = instances[key].serves.iter().filter(|served| leaves(served));
        let leaving: SmallVec<[(ModelKey, bool); 2]> =
            leaving.map(|served| (served.model, served.health.in_service())).collect();
        let new = leaving.iter().filter(|(_, was_in)| *was_in).map(|(model, _)| *model);
        let may_leave = |model: ModelKey| {
            let members = &models[model].instances;
            let stay = members.iter().filter(|at| **at != key && instances[**at].takes(model)).count();
            stay as f64 >= (least_in_service * members.len() as f64).ceil().max(1.0)
        };
        if !new.clone().all(may_leave) {
            models[model].counters.kept += 1;
            return false;
        }
        for (model, was_in) in &leaving {
            if let Some(served) = instances[key].of_mut(*model) {
                served.health.take_out(now, trouble);
            }
            if *was_in {
                models[*model].free.out.push(key);
            }
        }
        let was_in = new.clone().any(|own| own == model);
        leaving.iter().for_each(|(model, _)| self.compare(*model));
        self.probe(now, key);
        was_in
    }

    /// The models that are out of service at an instance and of which no copy of a query shows whether they work again.
    fn unshown(&self, key: InstanceKey) -> Models {
        let Some(instance) = self.books.instances.get(key) else { return Models::new() };
        let explores = |served: &Served| self.books.models[served.model].settings.policy.explores();
        let is_shown = |served: &Served| match served.health.is_silent() {
            // Any answer ends a silence, and while a job hangs there is none.
            true => !instance.jobs.is_empty() || instance.serves.iter().any(explores),
            false => explores(served),
        };
        let unshown =
            instance.serves.iter().filter(|served| !served.health.in_service() && !is_shown(served));
        unshown.map(|served| served.model).collect()
    }

    /// Asks for a probe of an instance, if a trial of such a model is due.
    pub(crate) fn probe(&mut self, now: Time, key: InstanceKey) {
        let (mut is_due, mut next) = (false, Time::MAX);
        for model in self.unshown(key) {
            let instance = &mut self.books.instances[key];
            if instance.of(model).is_some_and(|served| served.health.wants_trial(now)) {
                instance.begin_trial(now, model);
                is_due = true;
            }
            next = next.min(instance.of(model).and_then(|own| own.health.trial_at()).unwrap_or(next));
        }
        if is_due {
            self.actions.push(Action::Probe { instance: key });
        }
        self.look_at_instance(key, next);
    }

    /// A probed instance said that it works. One that does not, or says nothing, is probed again.
    pub fn probed(&mut self, now: Time, key: InstanceKey) {
        let unshown = self.unshown(key);
        self.back_in_service(now, key, Health::probed, |served| unshown.contains(&served.model));
        self.free(key);
        self.settle(now);
    }

    /// Brings those of an instance's models back into service that were shown to work.
    fn back_in_service(
        &mut self,
        now: Time,
        key: InstanceKey,
        show: fn(&mut Health, Time) -> bool,
        is_shown: impl Fn(&Served) -> bool,
    ) {
        let Some(instance) = self.books.instances.get_mut(key) else { return };
        let shown = instance.serves.iter_mut().filter(|served| is_shown(served));
        let back = shown.filter_map(|served| show(&mut served.health, now).then_some(served.model));
        for model in back.collect::<Models>() {
            self.books.models[model].free.out.retain(|at| *at != key);
            self.compare(model);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::Policy;
    use crate::script::Script;
    use crate::{HealthSettings, ModelSettings};

    /// Two instances with two models, of which one failure takes one out.
    fn two_models(policy: Policy) -> Script {
        let health = HealthSettings { failures: 1, ..HealthSettings::default() };
        let settings = ModelSettings { policy, health, max_attempts: 1, ..ModelSettings::default() };
        let mut script = Script::new(settings);
        script.models.push(script.dispatcher.add_model(settings));
        script.play("+1 +1");
        script
    }

    fn takes(script: &Script) -> [bool; 2] {
        [0, 1].map(|model| script.dispatcher.takes(script.instances[0], script.models[model]))
    }

    #[test]
    fn model_that_fails_at_an_instance_leaves_it_to_the_others() {
        let mut script = two_models(Policy::NONE);
        assert_eq!(script.play("q fi0"), "First 0 at 0, 0 Failed(Instance)");
        assert_eq!(takes(&script), [false, true]);
        let reading = script.dispatcher.instance(script.now, script.instances[0]).expect("it is there");
        assert!(reading.in_service);
        assert_eq!(reading.condition, crate::Condition::Failing);
        assert_eq!(script.play("10 q q,m1"), "First 1 at 1, First 2 at 0");
        assert_eq!(script.play("20 a1 a2"), "Model answers 1, Model answers 2");
        assert_eq!(takes(&script), [false, true], "only its own answer shows that it works");
        // Its trial runs beside jobs of the other model, but not beside its own.
        let three = crate::InstanceSpec::new(script.models.clone(), 3);
        script.dispatcher.serve(script.now, script.instances[0], &three);
        assert_eq!(script.play("249 q,m1 q,m1 q"), "First 3 at 1, First 4 at 0");
        assert_eq!(script.play("250 q"), "First 5 at 0");
        assert_eq!(script.play("a3"), "Model answers 3, First 6 at 1");
        assert_eq!(script.play("a5"), "Model answers 5");
        assert_eq!(takes(&script), [true, true]);
    }

    #[test]
    fn silence_is_that_of_all_models_of_an_instance() {
        let mut script = two_models(Policy::NONE);
        for query in 0..80 {
            script.play(&format!("{} q a{query}", 20 * query));
        }
        assert_eq!(script.play("2000 q,d100 2100 c80"), "First 80 at 0, cancel 80 Outrun, 80 Deadline");
        assert_eq!(takes(&script), [false, false]);
        assert_eq!(script.play("2400 q,m1 a81"), "First 81 at 1, Explore 81 at 0, Model answers 81");
        assert_eq!(script.play("a82"), "");
        assert_eq!(takes(&script), [true, true], "any answer ends it");
    }

    #[test]
    fn distrusted_model_is_out_for_a_minute_unless_too_few_stay() {
        for (policy, back) in
            [(Policy::HEDGE, "First 4 at 1, Explore 4 at 0"), (Policy::ONCE, "probe 0, First 4 at 1")]
        {
            let mut script = two_models(policy);
            script.play("q q");
            let [first, second] = [script.instances[0], script.instances[1]];
            let model = script.models[0];
            assert!(script.dispatcher.distrust(script.now, first, model));
            assert!(!script.dispatcher.distrust(script.now, second, model), "one of two stays");
            assert_eq!(takes(&script), [false, true]);
            assert_eq!(script.play("100 a0 a1"), "Model answers 0, Model answers 1");
            assert_eq!(takes(&script), [false, true], "no answer brings it back at once");
            let told =
                |script: &Script| script.dispatcher.instance(script.now, first).map(|own| own.condition);
            assert_eq!(told(&script), Some(crate::Condition::Wrong));
            assert_eq!(
                script.play("59999 q a2 q a3"),
                "First 2 at 1, Model answers 2, First 3 at 1, Model answers 3"
            );
            assert_eq!(script.play("60000 q a4"), format!("{back}, Model answers 4"));
            if policy == Policy::HEDGE {
                script.play("a5");
            } else {
                script.dispatcher.probed(script.now, first);
            }
            assert_eq!(takes(&script), [true, true], "{policy:?}");
            assert_eq!(script.dispatcher.counters(model).map(|own| own.kept), Some(1));
        }
    }

    #[test]
    fn instance_that_breaks_each_query_leaves_although_each_is_sent_once() {
        for breaks in ["0", "01"] {
            let settings = ModelSettings { policy: Policy::ONCE, ..ModelSettings::default() };
            let mut script = Script::new(settings);
            script.play("+1 +1 10");
            let mut failed = 0;
            for pair in 0..30 {
                let started = script.play("q q");
                for (row, start) in started.split(", ").enumerate() {
                    let is_bad = breaks.contains(&start[start.len() - 1..]);
                    let ended =
                        script.play(&format!("{}{}", if is_bad { "fm" } else { "a" }, 2 * pair + row));
                    failed += usize::from(ended.contains("Failed"));
                }
                if !script.dispatcher.takes(script.instances[0], script.models[0]) {
                    break;
                }
            }
            let in_service = script.instances.iter().map(|at| script.dispatcher.takes(*at, script.models[0]));
            assert_eq!(in_service.collect::<Vec<_>>(), [breaks == "01", true], "{failed} failed");
        }
    }

    #[test]
    fn background_shows_whether_an_instance_works_again_and_no_query_waits_long_for_the_last_one() {
        let health = HealthSettings { failures: 1, ..HealthSettings::default() };
        let policy = Policy::NONE;
        let settings = ModelSettings { policy, health, max_attempts: 1, ..ModelSettings::default() };
        let mut script = Script::new(settings);
        assert_eq!(script.play("+1 +1 +1 q,b fi0"), "First 0 at 0, 0 Failed(Instance)");
        assert_eq!(script.play("249 q,b a1"), "First 1 at 1, Model answers 1");
        assert_eq!(script.play("250 q,b a2"), "First 2 at 0, Model answers 2");

        let mut script = Script::new(settings);
        assert_eq!(script.play("+1 +1 q fi0"), "First 0 at 0, 0 Failed(Instance)");
        assert_eq!(script.play("250 q a1 fi2"), "First 1 at 1, Explore 1 at 0, Model answers 1");
        assert_eq!(script.play("1250 q a3 fi4"), "First 2 at 1, Explore 2 at 0, Model answers 2");
        // The next trial would be due after two seconds.
        assert_eq!(script.play("1260 -1 q 1499"), "");
        assert_eq!(script.play("1500"), "First 3 at 0");
    }

    #[test]
    fn instance_that_is_out_is_probed_where_no_copy_shows_that_it_works() {
        let health = HealthSettings { failures: 1, ..HealthSettings::default() };
        for (policy, probes) in [(Policy::ONCE, true), (Policy::EQUAL, true), (Policy::NONE, false)] {
            let mut script =
                Script::new(ModelSettings { policy, health, max_attempts: 1, ..ModelSettings::default() });
            let played = script.play("+1 +1 q fi0");
            assert_eq!(played, "First 0 at 0, 0 Failed(Instance)");
            assert_eq!(script.play("249"), "");
            // The pause doubles until it works.
            assert_eq!(script.play("250 749"), if probes { "probe 0" } else { "" }, "{policy:?}");
            assert_eq!(script.play("750"), if probes { "probe 0" } else { "" }, "{policy:?}");
            if probes {
                script.dispatcher.probed(script.now, script.instances[0]);
                assert_eq!(script.play("5000 q q"), "First 1 at 1, First 2 at 0");
            }
        }
    }
}
