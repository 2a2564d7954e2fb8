//! What the end of a run shows about its instance: its time, its speed and its health.

use crate::dispatcher::{Action, Dispatcher, End, Models};
use crate::instance::{InstanceKey, Job};
use crate::model::ModelKey;
use crate::query::{Failure, JobKey};
use crate::suits::Books;
use crate::time::Time;

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
                let was_out = !instance.health.in_service();
                instance.health.answered();
                model.batches.note(job.rows.len() as u32, true);
                if was_out {
                    self.back_in_service(job.instance);
                }
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
                served.speed.compare(model.times.median(), model.times.deviation());
                instance.set_slower(job.model, model.settings.stand_in);
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
                let is_silent =
                    model.times.rest.is_known() && model.times.rest.after(nanos / usual).is_infinite();
                model.times.rest.add_cancelled(nanos / usual);
                if is_silent {
                    instance.watch.failed();
                    let taken = self.take_out(now, job.instance, job.model);
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
            let models: Models = instance.serves.iter().map(|served| served.model).collect();
            models.into_iter().for_each(|model| self.compare(model));
        }
    }

    /// A failure that is the instance's own.
    pub(crate) fn failed(&mut self, now: Time, key: InstanceKey, model: ModelKey, failure: Failure) {
        let settings = self.books.models[model].settings.health;
        let Some(instance) = self.books.instances.get_mut(key) else { return };
        instance.watch.failed();
        if instance.health.failed(failure, &settings) {
            let taken = self.take_out(now, key, model);
            self.books.models[model].counters.out_failing += u64::from(taken);
        }
        self.examine(now, key);
    }

    /// Compares the speeds of a model's instances.
    pub(crate) fn compare(&mut self, key: ModelKey) {
        let Books { models, instances, .. } = &mut self.books;
        let model = &mut models[key];
        model.compared = 0;
        let in_service =
            |at: &&InstanceKey| instances.get(**at).is_some_and(|instance| instance.in_service());
        let members: Vec<InstanceKey> = model.instances.iter().filter(in_service).copied().collect();
        let mut means: Vec<f32> =
            members.iter().filter_map(|at| instances[*at].of(key)?.speed.mean()).collect();
        if !means.is_empty() {
            // Of an even number the faster one: half of the instances may be slow.
            let middle = (means.len() - 1) / 2;
            model.times.compare(*means.select_nth_unstable_by(middle, f32::total_cmp).1);
        }
        let (median, deviation) = (model.times.median(), model.times.deviation());
        let stand_in = model.settings.stand_in;
        (model.slots, model.capacity, model.fastest) = (0, 0.0, f32::INFINITY);
        for at in &members {
            let instance = &mut instances[*at];
            let slots = instance.slots;
            let Some(served) = instance.of_mut(key) else { continue };
            let slots = slots.min(served.at_once);
            served.speed.compare(median, deviation);
            instance.set_slower(key, stand_in);
            let (slower, factor) = instance.of(key).map_or((0.0, 1.0), |own| (own.slower, own.factor));
            model.slots += u32::from(slots);
            model.capacity += f64::from(slots) / f64::from(factor);
            model.fastest = model.fastest.min(slower);
        }
        model.fastest = if members.is_empty() { 0.0 } else { model.fastest };
        // Instances may have become fast or slow.
        let free = std::mem::take(&mut model.free.fast).into_iter();
        let free: Vec<_> =
            free.chain(std::mem::take(&mut model.free.slow).into_iter().map(|(_, at)| at)).collect();
        for at in free {
            let served = instances.get(at).and_then(|instance| instance.of(key));
            if let Some(slower) = served.map(|served| served.slower) {
                model.list(at, slower);
            }
        }
        self.touch(key);
        if let Some(stand_in) = stand_in.filter(|stand_in| self.books.models.contains_key(*stand_in)) {
            self.compare(stand_in);
        }
    }

    /// Takes an instance out of service, unless too few instances of one of its models would stay. Says whether it was in service.
    fn take_out(&mut self, now: Time, key: InstanceKey, model: ModelKey) -> bool {
        let settings = self.books.models[model].settings.health;
        let instance = &self.books.instances[key];
        let models: Models = instance.serves.iter().map(|served| served.model).collect();
        let was_in = instance.health.in_service();
        if was_in {
            let may_leave = |model: &ModelKey| {
                let members = &self.books.models[*model].instances;
                let stays = |at: &&InstanceKey| **at != key && self.books.instances[**at].in_service();
                let stay = members.iter().filter(stays).count();
                stay as f64 >= (settings.least_in_service * members.len() as f64).ceil().max(1.0)
            };
            if !models.iter().all(may_leave) {
                self.books.models[model].counters.kept += 1;
                return false;
            }
            models.iter().for_each(|model| self.books.models[*model].free.out.push(key));
        }
        self.books.instances[key].health.take_out(now, &settings);
        models.into_iter().for_each(|model| self.compare(model));
        self.probe(now, key);
        was_in
    }

    /// Asks for a probe of an instance that is out of service and due, if queries of none of its models get copies.
    pub(crate) fn probe(&mut self, now: Time, key: InstanceKey) {
        let Books { models, instances, .. } = &mut self.books;
        let Some(instance) = instances.get_mut(key).filter(|own| own.jobs.is_empty()) else { return };
        let mut settings = instance.serves.iter().map(|served| &models[served.model].settings);
        let Some(health) = settings.clone().next().map(|settings| settings.health) else { return };
        if instance.health.in_service() || settings.any(|settings| settings.policy.explores()) {
            return;
        }
        if instance.health.wants_trial(now) {
            instance.health.begin_trial(now, &health);
            self.actions.push(Action::Probe { instance: key });
        }
        if let Some(next) = instance.health.trial_at() {
            self.look_at_instance(key, next);
        }
    }

    /// A probed instance said that it works. One that does not, or says nothing, is probed again.
    pub fn probed(&mut self, now: Time, key: InstanceKey) {
        if let Some(instance) = self.books.instances.get_mut(key).filter(|own| !own.health.in_service()) {
            instance.health.answered();
            self.back_in_service(key);
            self.free(key);
        }
        self.settle(now);
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

#[cfg(test)]
mod tests {
    use crate::policy::Policy;
    use crate::script::Script;
    use crate::{HealthSettings, ModelSettings};

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
