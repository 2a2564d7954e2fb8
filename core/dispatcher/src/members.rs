//! Models and instances come, change and go.
//!
//! These calls change facts: what an instance serves, whether it may get jobs, a model's settings. The queries of the models are
//! marked, and `step` says what becomes of them. So a removed model is one that no instance serves and for which no query
//! waits, and it is forgotten with its last query and job.

use std::time::Duration;

use crate::Time;
use crate::bound::Bounds;
use crate::dispatcher::{Dispatcher, End};
use crate::health::Health;
use crate::instance::{Instance, InstanceKey, InstanceSpec, Offered, Served};
use crate::model::{Model, ModelKey, ModelSettings};
use crate::query::{Failure, QueryKey};
use crate::suits::Books;

impl<P: Clone, O> Dispatcher<P, O> {
    /// Adds a model. Its stand-in is added before it.
    pub fn add_model(&mut self, settings: ModelSettings) -> ModelKey {
        let bounds = self.books.bounds.insert(Bounds::default());
        self.books.models.insert(Model::new(settings, bounds))
    }

    /// Adds a version of a model: approximate answers of both count for the same bound. If the other is gone, it is a model.
    pub fn add_version(&mut self, settings: ModelSettings, of: ModelKey) -> ModelKey {
        match self.books.models.get(of).map(|model| model.bounds) {
            Some(bounds) => self.books.models.insert(Model::new(settings, bounds)),
            None => self.add_model(settings),
        }
    }

    /// Changes the settings of a model, for its present queries too. Its estimates and saved budgets stay.
    ///
    /// # Panics
    ///
    /// If the model would be the stand-in of its own stand-in.
    pub fn configure(&mut self, now: Time, key: ModelKey, settings: ModelSettings) {
        let Some(model) = self.books.models.get_mut(key).filter(|model| !model.is_removed) else { return };
        let before = std::mem::replace(&mut model.settings, settings);
        model.hedges.configure(settings.hedges);
        model.retries.configure(settings.retries);
        let mut next = settings.stand_in;
        while let Some(model) = next {
            assert!(model != key, "a model cannot be the stand-in of its own stand-in");
            next = self.books.models.get(model).and_then(|model| model.settings.stand_in);
        }
        if let Some(old) = before.stand_in.filter(|_| before.stand_in != settings.stand_in) {
            let served = self.books.instances.values_mut().filter_map(|instance| instance.of_mut(old));
            served.for_each(|served| served.follows = false);
        }
        self.compare(key);
        self.mark_queries(key);
        self.settle(now);
    }

    /// Removes a model. Its running jobs may still answer; queries that wait for it are rejected with
    /// [`NoInstance`](crate::Reject::NoInstance).
    pub fn remove_model(&mut self, now: Time, key: ModelKey) {
        let Some(model) = self.books.models.get_mut(key).filter(|model| !model.is_removed) else { return };
        model.is_removed = true;
        model.settings.instance_wait = Duration::ZERO;
        for at in model.instances.clone() {
            self.unserve(at, key);
        }
        self.members_changed(now, key);
        // Queries that want it as their stand-in.
        let others =
            self.books.queries.iter().filter(|(_, query)| query.model != key && query.wanted(key).is_some());
        for query in others.map(|(query, _)| query).collect::<Vec<_>>() {
            self.withdraw(query, key);
            self.mark(query);
        }
        self.mark_queries(key);
        self.leaving.push(key);
        self.settle(now);
    }

    /// Forgets removed models without queries and jobs.
    pub(crate) fn forget_models(&mut self) {
        let (Books { models, bounds, .. }, turns) = (&mut self.books, &mut self.turns);
        self.leaving.retain(|key| {
            let is_used = models.get(*key).is_some_and(|model| model.uses > 0);
            if !is_used && let Some(model) = models.remove(*key) {
                turns.forget(*key);
                if !models.values().any(|other| other.bounds == model.bounds) {
                    bounds.remove(model.bounds);
                }
            }
            is_used
        });
    }

    /// Adds an instance.
    pub fn join(&mut self, now: Time, spec: &InstanceSpec) -> InstanceKey {
        let key = self.books.instances.insert(Instance { look: Time::MAX, ..Instance::default() });
        self.serve(now, key, spec);
        key
    }

    /// Changes the models and slots of an instance. What is known about it stays, and so do its jobs. Removed models are left out.
    pub fn serve(&mut self, now: Time, key: InstanceKey, spec: &InstanceSpec) {
        let Some(instance) = self.books.instances.get_mut(key) else { return };
        instance.most = spec.slots.max(1);
        instance.concurrency = spec.learns.then(|| instance.concurrency.take().unwrap_or_default());
        instance.slots = instance.limit();
        instance.site = spec.site;
        let mut models = instance.models();
        for Offered { model, at_once } in &spec.models {
            let of = self.books.models.get_mut(*model).filter(|of| !of.is_removed);
            if let Some(of) = of.filter(|_| instance.of(*model).is_none()) {
                let silent = instance.serves.iter().map(|served| served.health).find(Health::is_silent);
                of.free.out.extend(silent.map(|_| key));
                let health = silent.unwrap_or_default();
                instance.serves.push(Served { model: *model, health, factor: 1.0, ..Served::default() });
                of.instances.push(key);
                models.push(*model);
            }
            if let Some(served) = instance.of_mut(*model) {
                served.at_once = at_once.map_or(u16::MAX, |most| most.max(1));
            }
        }
        for model in models {
            if !spec.models.iter().any(|offered| offered.model == model) {
                self.unserve(key, model);
            }
            self.members_changed(now, model);
        }
        self.free(key);
        self.settle(now);
    }

    /// An instance serves a model no longer. To be followed by [`members_changed`](Self::members_changed), which drops it from the
    /// free ones.
    fn unserve(&mut self, key: InstanceKey, model: ModelKey) {
        if let Some(instance) = self.books.instances.get_mut(key) {
            instance.serves.retain(|served| served.model != model);
        }
        let of = &mut self.books.models[model];
        of.instances.retain(|at| *at != key);
        of.free.out.retain(|at| *at != key);
    }

    /// Removes an instance. Its jobs fail as `Failure::Instance`, so their queries run elsewhere if they may be sent again, and otherwise
    /// end, unless a stand-in answers. If it was the last, those that may and those that wait have `instance_wait` for another.
    pub fn leave(&mut self, now: Time, key: InstanceKey) {
        let Some(instance) = self.books.instances.remove(key) else { return };
        self.sharing -= usize::from(instance.grants.is_some());
        for served in &instance.serves {
            self.unserve(key, served.model);
            self.members_changed(now, served.model);
        }
        for job in instance.jobs {
            let Some(of) = self.job_ends(now, job) else { continue };
            self.attempts_ended(now, job, &of, End::Failed(Failure::Instance));
        }
        self.settle(now);
    }

    /// Gives an instance no further job, or jobs again: it drains, or an operator holds it. Its jobs go on.
    pub fn hold(&mut self, now: Time, key: InstanceKey, held: bool) {
        let Some(instance) = self.books.instances.get_mut(key) else { return };
        instance.held = held;
        for model in instance.models() {
            self.members_changed(now, model);
        }
        self.free(key);
        self.settle(now);
    }

    /// The instances of a model are others, or one of them is held or free again: compares their speeds, and takes note of whether
    /// one is not held.
    fn members_changed(&mut self, now: Time, key: ModelKey) {
        self.compare(key);
        let instances = &self.books.instances;
        let model = &mut self.books.models[key];
        let is_usable = model.instances.iter().any(|at| !instances[*at].held);
        let before = model.deserted;
        model.deserted = if is_usable { None } else { before.or(Some(now)) };
        if model.deserted != before {
            self.mark_queries(key);
        }
    }

    /// Marks the queries that a model may answer, itself or as a stand-in.
    fn mark_queries(&mut self, model: ModelKey) {
        let stands_in = |of: ModelKey| self.books.models[of].settings.stand_in == Some(model);
        let own =
            self.books.queries.iter().filter(|(_, query)| query.model == model || stands_in(query.model));
        let own: Vec<QueryKey> = own.map(|(key, _)| key).collect();
        own.into_iter().for_each(|key| self.mark(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::script::Script;

    #[test]
    fn queries_wait_for_the_first_or_a_new_instance_as_long_as_they_may() {
        let rows = [
            ("q,d9000 999 1000", "0 NoInstance"),
            ("q,d9000 999 +1", "First 0 at 0"),
            ("+1 h0 q,d9000 999 1000", "0 NoInstance"),
            // Those that waited before the last one left wait as long as those that come later.
            ("+1 q,d9000 q,d9000 5000 h0 5999 q,d9000 6000", "First 0 at 0, 1 NoInstance"),
            ("+1 q,d9000 q,d9000 5000 h0 u0 5500 h0 6499 6500", "First 0 at 0, 1 NoInstance"),
            ("+1 q,d9000 q,d9000 5000 -0 5999 +1", "First 0 at 0, 0 Failed(Instance), First 1 at 1"),
        ];
        for (calls, seen) in rows {
            let mut script = Script::new(ModelSettings { policy: Policy::ONCE, ..ModelSettings::default() });
            let played = script.play(calls);
            assert_eq!(played, seen, "{calls}");
        }
    }

    #[test]
    fn versions_share_a_bound_until_the_last_is_gone() {
        let mut script = Script::new(ModelSettings::default());
        let first = script.models[0];
        let second = script.dispatcher.add_version(ModelSettings::default(), first);
        let bounds = |script: &Script| script.dispatcher.books.bounds.len();
        let of = |script: &Script, model| script.dispatcher.books.models[model].bounds;
        assert_eq!((of(&script, first), bounds(&script)), (of(&script, second), 1));
        script.dispatcher.remove_model(script.now, first);
        assert_eq!(bounds(&script), 1);
        script.dispatcher.remove_model(script.now, second);
        assert_eq!(bounds(&script), 0);
        script.dispatcher.add_version(ModelSettings::default(), first);
        assert_eq!(bounds(&script), 1);
    }

    #[test]
    fn new_settings_hold_for_queries_in_progress() {
        let none = ModelSettings { policy: Policy::NONE, ..ModelSettings::default() };
        let mut script = Script::new(none);
        assert_eq!(script.play("+1 +1 q 500"), "First 0 at 0");
        script.dispatcher.configure(script.now, script.models[0], ModelSettings::default());
        assert_eq!(script.play("t"), "Hedge 0 at 1");
    }

    #[test]
    fn shorter_wait_for_an_instance_holds_for_queries_that_wait_already() {
        let mut script = Script::new(ModelSettings { policy: Policy::NONE, ..ModelSettings::default() });
        assert_eq!(script.play("q,d9000 100"), "");
        let instance_wait = Duration::from_millis(300);
        let settings = ModelSettings { policy: Policy::NONE, instance_wait, ..ModelSettings::default() };
        script.dispatcher.configure(script.now, script.models[0], settings);
        assert_eq!(script.play("299"), "");
        assert_eq!(script.play("300"), "0 NoInstance");
    }

    #[test]
    fn late_run_is_copied_although_its_instance_drains_or_has_lost_the_model() {
        for drains in [true, false] {
            let none = ModelSettings { policy: Policy::NONE, ..ModelSettings::default() };
            let mut script = Script::new(none);
            assert_eq!(script.play("+1 q 20 a0 +1 q"), "First 0 at 0, Model answers 0, First 1 at 0");
            let (at, model) = (script.instances[0], script.models[0]);
            match drains {
                true => script.dispatcher.hold(script.now, at, true),
                false => script.dispatcher.serve(script.now, at, &InstanceSpec::new([], 1)),
            }
            script.dispatcher.configure(script.now, model, ModelSettings::default());
            assert_eq!(script.play("59"), "");
            assert_eq!(script.play("70"), "Hedge 1 at 1", "of a run that is late after 40 ms");
        }
    }

    #[test]
    fn removed_model_answers_what_runs_and_is_forgotten() {
        let mut script = Script::new(ModelSettings { policy: Policy::NONE, ..ModelSettings::default() });
        assert_eq!(script.play("+1 +1 q q q"), "First 0 at 0, First 1 at 1");
        let model = script.models[0];
        script.dispatcher.remove_model(script.now, model);
        assert_eq!(script.play("t"), "2 NoInstance");
        assert_eq!(script.play("q"), "3 NoInstance", "it still has queries");
        assert_eq!(script.play("a0 fi1"), "Model answers 0, 1 NoInstance");
        assert_eq!(script.dispatcher.counters(model), None);
    }

    #[test]
    fn instance_takes_other_models_and_slots_and_keeps_its_jobs() {
        let mut script = Script::new(ModelSettings::default());
        assert_eq!(script.play("+1 q q"), "First 0 at 0");
        let two = InstanceSpec::new(script.models.clone(), 2);
        script.dispatcher.serve(script.now, script.instances[0], &two);
        assert_eq!(script.play("t"), "First 1 at 0");
        let other = script.dispatcher.add_model(ModelSettings::default());
        let spec = InstanceSpec::new([other], 2);
        script.dispatcher.serve(script.now, script.instances[0], &spec);
        script.models.push(other);
        assert_eq!(script.play("q q,m1 a0 a1"), "Model answers 0, First 3 at 0, Model answers 1");
    }

    #[test]
    fn model_with_a_limit_of_its_own_leaves_slots_to_others() {
        let mut script = Script::new(ModelSettings { policy: Policy::NONE, ..ModelSettings::default() });
        script.models.push(script.dispatcher.add_model(ModelSettings::default()));
        let mut spec = InstanceSpec::new(script.models.clone(), 3);
        spec.models[0].at_once = Some(1);
        script.instances.push(script.dispatcher.join(script.now, &spec));
        assert_eq!(script.play("q q q,m1 q,m1 q,m1"), "First 0 at 0, First 2 at 0, First 3 at 0");
        assert_eq!(script.play("a1"), "Model answers 2, First 4 at 0");
        assert_eq!(script.play("a0"), "Model answers 0, First 1 at 0");
    }
}
