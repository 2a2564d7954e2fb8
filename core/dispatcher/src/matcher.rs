//! The matcher: it brings wanted attempts and instances with room together.
//!
//! It is entered for each model whose line or whose instances changed. It serves the lines in the order of urgency: stand-ins of
//! late queries, retries and copies, queries of which no run of the model lives or has failed, background. Then no query of a client waits
//! beside a free fast instance that suits it and is not doubtful, which the random tests check after each event; copies and stand-ins
//! may, where shares reserved it. Slow instances may stay idle on purpose.

use std::collections::VecDeque;

use smallvec::{SmallVec, smallvec};

use crate::Time;
use crate::attempts::Keys;
use crate::batch::{self, Load};
use crate::dispatcher::{Dispatcher, Models};
use crate::instance::InstanceKey;
use crate::model::{Line, Model, ModelKey};
use crate::policy::Placement;
use crate::query::{QueryKey, Why};
use crate::site::FARTHEST;
use crate::step::again;
use crate::suits::{Books, Fit};

/// Where an attempt may start now.
enum Place {
    At(InstanceKey),
    /// Some instance has room, but this query avoids it.
    NotForThis,
    /// No instance has room, or a faster one will have it soon.
    Nowhere,
}

/// A line of a model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    StandIn,
    Again,
    /// First attempts, of one payer and priority.
    First(usize),
    Background,
}

impl Urgency {
    fn line(self, line: &mut Line) -> &mut VecDeque<QueryKey> {
        match self {
            Urgency::StandIn => &mut line.stand_ins,
            Urgency::Again => &mut line.again,
            Urgency::First(lane) => &mut line.first.0[lane].queue,
            Urgency::Background => &mut line.background,
        }
    }
}

/// One in so many instances stays idle for queries that arrive while background work runs.
const HEADROOM: usize = 20;

impl<P: Clone, O> Dispatcher<P, O> {
    /// Serves the stand-ins of late queries, the retries and copies, or the background.
    pub(crate) fn match_again(&mut self, now: Time, model: ModelKey, urgency: Urgency) {
        let mut at = 0;
        while let Some(key) = urgency.line(&mut self.books.models[model].line).get(at).copied() {
            if self.books.queries.get(key).is_none_or(|query| query.wanted(model).is_none()) {
                urgency.line(&mut self.books.models[model].line).remove(at);
                continue;
            }
            if self.books.models[model].free.is_empty() {
                return;
            }
            if self.is_reserved(now, model, key) {
                // Once its runs hang, it is not.
                self.look_at(key, again(&self.books.queries[key], now));
                at += 1;
                continue;
            }
            let place = match urgency {
                Urgency::Background => self.find_idle(now, model, key),
                Urgency::StandIn | Urgency::Again | Urgency::First(_) => self.find(now, model, key),
            };
            let instance = match place {
                Place::At(instance) => instance,
                Place::NotForThis => {
                    at += 1;
                    continue;
                }
                Place::Nowhere => return,
            };
            urgency.line(&mut self.books.models[model].line).remove(at);
            let rows = match urgency {
                Urgency::StandIn => self.rows(now, model, urgency, key, instance),
                _ => smallvec![key],
            };
            self.start_at(now, model, &rows, instance);
        }
    }

    /// Serves the queries of these models that have not run yet, one after the other in the order of their turns.
    pub(crate) fn match_first(&mut self, now: Time, models: &[ModelKey]) {
        let waits = |model: &ModelKey| !self.books.models[*model].line.first.is_empty();
        let mut open: Models = models.iter().copied().filter(waits).collect();
        while !open.is_empty() {
            let turn = |model: &ModelKey| {
                let lanes = self.books.models[*model].line.first.0.iter();
                lanes.filter(|lane| !lane.queue.is_empty()).filter_map(|lane| self.turns.rank(lane)).min()
            };
            let next =
                if open.len() == 1 { Some(0) } else { (0..open.len()).min_by_key(|at| turn(&open[*at])) };
            let Some(next) = next else { return };
            if !self.start_next(now, open[next]) {
                open.remove(next);
            }
        }
    }

    /// Starts a query of a model, from the lane whose turn it is (`Turns::rank`): the first that an instance suits, or the last if that
    /// instance is slow and the first should still wait for a faster one. Says whether one started.
    fn start_next(&mut self, now: Time, key: ModelKey) -> bool {
        let lanes = &self.books.models[key].line.first.0;
        let mut order: SmallVec<[usize; 4]> = (0..lanes.len()).collect();
        if order.len() > 1 {
            order.sort_by_key(|lane| (self.turns.rank(&lanes[*lane]), lanes[*lane].priority));
        }
        for lane in order {
            let mut at = 0;
            while let Some(first) = self.lane(key, lane).get(at).copied() {
                if !self.waits(key, first, true) {
                    self.lane(key, lane).remove(at);
                    continue;
                }
                let query = &self.books.queries[first];
                let is_lost = || query.is_unanswered() && self.books.gives_up(query).0 <= now;
                if self.books.models[key].batch > 1 && is_lost() {
                    self.mark(first);
                    at += 1;
                    continue;
                }
                let instance = match self.find(now, key, first) {
                    Place::At(instance) => instance,
                    Place::NotForThis => {
                        at += 1;
                        continue;
                    }
                    Place::Nowhere => return false,
                };
                let query = &self.books.queries[first];
                let mut next = first;
                let waits =
                    || self.books.waits_until(key, query, instance).is_some_and(|latest| latest > now);
                if !self.is_fast(key, instance) && waits() {
                    while let Some(last) = self.lane(key, lane).back().copied()
                        && last != first
                    {
                        let waits = self.waits(key, last, true);
                        if waits
                            && self.books.suits(key, &self.books.queries[last], instance, now) != Fit::Yes
                        {
                            break;
                        }
                        self.lane(key, lane).pop_back();
                        if waits {
                            next = last;
                            break;
                        }
                    }
                }
                let mut rows: Keys = smallvec![next];
                if next == first {
                    self.lane(key, lane).remove(at);
                    rows = self.rows(now, key, Urgency::First(lane), first, instance);
                }
                self.start_at(now, key, &rows, instance);
                return true;
            }
        }
        false
    }

    fn lane(&mut self, model: ModelKey, lane: usize) -> &mut VecDeque<QueryKey> {
        Urgency::First(lane).line(&mut self.books.models[model].line)
    }

    /// A query and those behind it in line that the instance should run in the same job.
    fn rows(
        &mut self,
        now: Time,
        key: ModelKey,
        line: Urgency,
        first: QueryKey,
        instance: InstanceKey,
    ) -> Keys {
        let mut rows: Keys = smallvec![first];
        let model = &self.books.models[key];
        let query = &self.books.queries[first];
        let most = model.batches.of(model.settings.max_rows);
        let is_first = line != Urgency::StandIn;
        let waiting = if is_first { model.line.waiting } else { model.line.stand_ins.len() as u32 + 1 };
        if most == 1 || waiting <= model.free.fast.len() as u32 || query.alone {
            return rows;
        }
        let load = Load {
            waiting,
            size: query.shape.size,
            arrivals: model.arrivals.per_nano(now),
            slots: model.capacity.max(1.0),
            left: query.deadline.nanos_since(now),
            span: query.deadline.nanos_since(query.arrived),
        };
        let slower = self.books.served(key, instance).map_or(0.0, |served| served.slower);
        let wanted = batch::rows(&load, &model.times, most, f64::from(slower.exp()));
        let (shape, most) = (query.shape, wanted.in_time);
        self.books.models[key].batch = wanted.best;
        let mut at = 0;
        while rows.len() < most as usize
            && let Some(next) = line.line(&mut self.books.models[key].line).get(at).copied()
        {
            // It may be in line twice, if its stand-in had started in between.
            if rows.contains(&next) {
                line.line(&mut self.books.models[key].line).remove(at);
                continue;
            }
            let joins = self.waits(key, next, is_first) && {
                let next = &self.books.queries[next];
                !next.alone && shape == next.shape && self.books.suits(key, next, instance, now) == Fit::Yes
            };
            if joins {
                line.line(&mut self.books.models[key].line).remove(at);
                rows.push(next);
            } else {
                at += 1;
            }
        }
        rows
    }

    /// Whether an attempt leaves the free instances to shares that reserved some: a copy, a stand-in's run or background, but no retry.
    /// If all runs of its query hang, only this one can answer it.
    pub(crate) fn is_reserved(&self, now: Time, model: ModelKey, key: QueryKey) -> bool {
        let unused = self.turns.unused() as usize;
        let free = &self.books.models[model].free;
        unused > 0 && free.fast.len() + free.slow.len() <= unused && {
            let query = &self.books.queries[key];
            query.wanted(model).is_some_and(|at| query.attempts[at].why != Why::Retry)
                && !self.books.hangs(query, now)
        }
    }

    /// Whether an entry of the line waits for its query's first run, or for another one.
    pub(crate) fn waits(&self, model: ModelKey, key: QueryKey, first: bool) -> bool {
        let Some(query) = self.books.queries.get(key) else { return false };
        query.wanted(model).is_some_and(|at| (query.attempts[at].why == Why::First) == first)
    }

    fn start_at(&mut self, now: Time, model: ModelKey, rows: &Keys, instance: InstanceKey) {
        self.unlist(model, instance);
        self.start(now, model, rows, instance);
        self.free(instance);
    }

    /// The idle instance that should run a background query now: no query may wait for any of its models, and some others
    /// must stay idle.
    fn find_idle(&mut self, now: Time, model: ModelKey, key: QueryKey) -> Place {
        self.tidy(model);
        let (books, query) = (&self.books, &self.books.queries[key]);
        let pool = &books.models[model];
        let is_idle = |at: &InstanceKey| {
            let instance = &books.instances[*at];
            let waits = |of: ModelKey| {
                let line = &books.models[of].line;
                line.waiting > 0 || !line.stand_ins.is_empty() || !line.again.is_empty()
            };
            instance.jobs.is_empty() && !instance.serves.iter().any(|served| waits(served.model))
        };
        let takes = |at: &InstanceKey| books.instances[*at].takes(model);
        // One that is slow or out of service is used only to show whether it still is: once well, it would otherwise stay without
        // background for ever.
        let is_unexplored = |at: &InstanceKey| books.is_unexplored(model, *at, now);
        let slow = || pool.free.slow.iter().map(|(_, at)| *at).filter(is_unexplored);
        let in_service = || pool.free.fast.iter().copied().chain(slow()).filter(takes).filter(is_idle);
        if in_service().count() <= pool.instances.len().div_ceil(HEADROOM) {
            return Place::Nowhere;
        }
        let trials = pool.free.out.iter().copied().filter(is_unexplored).filter(is_idle);
        let suiting = in_service().filter(|at| books.suits(model, query, *at, now) == Fit::Yes);
        let found = trials.chain(suiting).min_by_key(|at| FARTHEST - books.apart(query, *at));
        found.map_or(Place::NotForThis, Place::At)
    }

    /// Whether an instance counts as one of the fastest.
    pub(crate) fn is_fast(&self, model: ModelKey, at: InstanceKey) -> bool {
        let pool = &self.books.models[model];
        pool.settings.policy.placement == Placement::InTurn
            || self.books.served(model, at).is_some_and(|served| pool.is_fast(served.slower))
    }

    /// The free instance that should run a query's attempt now. If it should wait, notes when to look again.
    fn find(&mut self, now: Time, model: ModelKey, key: QueryKey) -> Place {
        self.tidy(model);
        let (books, query) = (&self.books, &self.books.queries[key]);
        let Model { free, slots, .. } = &books.models[model];
        let (mut look, mut wait) = (Time::MAX, None);
        let (mut found, mut apart, mut doubtful, mut has_room) = (None, 0, None, false);
        let slow = free.slow.iter().map(|(_, at)| (true, *at));
        for (is_slow, at) in free.fast.iter().map(|at| (false, *at)).chain(slow) {
            if is_slow && found.is_some() {
                break;
            }
            match books.suits(model, query, at, now) {
                Fit::No => has_room |= query.is_at(at) && books.instances[at].has_room(),
                Fit::From(from) => {
                    has_room = true;
                    look = look.min(from);
                }
                // Only if no other has room.
                Fit::Yes if books.is_doubtful(model, at, now) => doubtful = doubtful.or(Some(at)),
                Fit::Yes if is_slow => match books.waits_for_faster(model, at, query, now) {
                    None => found = Some(at),
                    Some(until) => {
                        wait = wait.filter(|(_, own)| *own <= until).or(Some((at, until)));
                    }
                },
                Fit::Yes => {
                    let own = books.apart(query, at);
                    if found.is_none() || own > apart {
                        (found, apart) = (Some(at), own);
                    }
                }
            }
            if found.is_some() && (is_slow || apart == FARTHEST) {
                break;
            }
        }
        let mut found = found.or(doubtful.filter(|_| wait.is_none()));
        if found.is_none() && wait.is_none() {
            // No instance in service has room, so one that was taken out has a chance to show that it works.
            for at in &free.out {
                let instance = &books.instances[*at];
                if instance.held || query.is_at(*at) || !books.may_be_tried(model, *at) {
                    continue;
                }
                let trial_at = instance.of(model).and_then(|served| match slots {
                    0 => served.health.soonest_trial(),
                    _ => served.health.trial_at(),
                });
                match trial_at.max(books.avoids(model, query, *at)) {
                    Some(due) if due > now => wait = wait.filter(|(_, own)| *own <= due).or(Some((*at, due))),
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
            let stays = instance.has_room() && instance.takes(key);
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
    pub(crate) fn free(&mut self, key: InstanceKey) {
        let Books { models, instances, .. } = &mut self.books;
        let Some(instance) = instances.get_mut(key) else { return };
        if !instance.has_room() || instance.held {
            return;
        }
        let mut touched = Models::new();
        for served in &mut instance.serves {
            touched.push(served.model);
            if served.listed || !served.health.in_service() {
                continue;
            }
            served.listed = true;
            models[served.model].list(key, served.slower);
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
}

#[cfg(test)]
mod tests {
    use crate::script::Script;
    use crate::{ModelSettings, Payer, Policy, ShareKey, Terms};

    #[test]
    fn copy_takes_a_reserved_instance_once_its_query_hangs() {
        let mut script = Script::new(ModelSettings::default());
        let share = |share| Payer::Share(ShareKey(share));
        let terms = |reserved| Terms { weight: 1.0, reserved };
        script.dispatcher.promise(&[(share(1), terms(1)), (share(2), terms(0))]);
        script.play("+1");
        for job in 0..80 {
            // One in ten takes 60 ms.
            let (begins, ends) = (100 * job, 100 * job + if job % 10 == 9 { 60 } else { 20 });
            script.play(&format!("{begins} q,s1 {ends} a{job}"));
        }
        assert_eq!(script.play("+1 8000 q,s2"), "First 80 at 0");
        assert_eq!(script.play("8050"), "", "it is late");
        assert_eq!(script.play("8200"), "Hedge 80 at 1", "it hangs");
    }

    #[test]
    fn names_of_queries_that_ended_do_not_pile_up_behind_one_that_waits() {
        let settings = ModelSettings { policy: Policy::NONE, ..ModelSettings::default() };
        let mut script = Script::new(settings);
        script.play("+1 q,d900000 q,d900000 q,b,d900000");
        for now in 0..1000 {
            script.play(&format!("{now} q,d5 q,b,d5"));
        }
        let line = &script.dispatcher.books.models[script.models[0]].line;
        let listed = line.first.0[0].queue.len() + line.background.len();
        assert!(listed < 200, "{listed} names of {} queries", script.dispatcher.open_queries());
    }

    #[test]
    fn stand_ins_of_several_late_queries_share_a_job() {
        let mut script = Script::default();
        let settings = ModelSettings { max_rows: 8, ..ModelSettings::default() };
        let stand_in = script.dispatcher.add_model(settings);
        let settings = ModelSettings { policy: Policy::STAND_IN, stand_in: Some(stand_in), ..settings };
        script.models =
            vec![stand_in, script.dispatcher.add_model(ModelSettings { max_rows: 1, ..settings })];
        script.play("+1 q,m1 20 a0 q,m1 40 a1 q,m1 60 a2");
        assert_eq!(
            script.play("100 q,m1 q,m1 120 a3 125 a4"),
            "First 3 at 0, Model answers 3, StandIn 4 at 0, StandIn answers 4"
        );
        assert_eq!(
            script.play("200 q,m1 q,m1 q,m1 220 a5 225 a6"),
            "First 5 at 0, Model answers 5, StandIn 7+6 at 0, StandIn answers 6, StandIn answers 7"
        );
    }
}
