//! Several frontends at one instance: each says how many jobs it would start there (an *ask*), and the instance grants its room.
//! What both sides share, and why, is in the crate `grants`; this is the frontend's side.
//!
//! An instance that several frontends use has room for one of them only while it has granted some. A frontend with wants that
//! no instance takes asks at a few instances more than it has wants, the fastest first, and binds a query to an instance only
//! when a grant comes.
//!
//! An ask is renewed when its oldest want is younger by an eighth of a run, because otherwise later queries go before older ones
//! of others (worth 13 to 17 % of the gap). Rejected: estimates of the queues of others (the gap of one sick instance is 7 % worse),
//! more asks as time passes (40 % of all messages for a millisecond).
//!
//! An instance that cannot grant is used by what each frontend observes.

use std::time::Duration;

use parm_grants::{Ask, Class};
use slotmap::SecondaryMap;
use smallvec::SmallVec;

use crate::Time;
use crate::dispatcher::{Action, Dispatcher};
use crate::instance::{InstanceKey, Served};
use crate::model::ModelKey;
use crate::query::QueryKey;

/// What is wanted of an instance: an ask with the time since which its oldest want waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    class: Class,
    since: Time,
    jobs: u16,
}

impl Want {
    /// A copy that no query waits for.
    fn spare(now: Time) -> Self {
        Self { class: Class::Spare, since: now, jobs: 1 }
    }
}

/// A frontend asks at so many instances more than it has wants: three nearly always include one that is soon idle.
const MORE: usize = 2;

/// The part of a run after which it asks everywhere: then all of these were busy.
const WIDENS: f64 = 1.0 / 32.0;

/// The part of a run by which the oldest want is younger when an ask is renewed.
const YOUNGER: f64 = 1.0 / 8.0;

impl<P: Clone, O> Dispatcher<P, O> {
    /// Whether several frontends use an instance, so that it has room only when it grants some. It may say so again on another
    /// connection: then it knows no ask, and earlier grants are void.
    pub fn shared(&mut self, now: Time, key: InstanceKey, is_shared: bool) {
        let Some(instance) = self.books.instances.get_mut(key) else { return };
        let was_shared = instance.grants.is_some();
        if was_shared || is_shared {
            instance.grants = is_shared.then_some(0);
            instance.told = None;
            self.sharing = self.sharing + usize::from(is_shared) - usize::from(was_shared);
            self.free(key);
            self.settle(now);
        }
    }

    /// An instance grants a job.
    pub fn granted(&mut self, now: Time, key: InstanceKey) {
        let Some(instance) = self.books.instances.get_mut(key) else { return };
        let Some(grants) = &mut instance.grants else { return };
        *grants += 1;
        if let Some(told) = instance.told.as_mut() {
            told.jobs = told.jobs.saturating_sub(1);
        }
        instance.told = instance.told.filter(|told| told.jobs > 0);
        self.free(key);
        self.settle(now);
    }

    /// An instance wants a grant back. If it is unused it is returned.
    pub fn recalled(&mut self, now: Time, key: InstanceKey) {
        let Some(instance) = self.books.instances.get_mut(key) else { return };
        if let Some(grants @ 1..) = instance.grants {
            instance.grants = Some(grants - 1);
            self.actions.push(Action::Return { instance: key });
        }
        self.settle(now);
    }

    /// States what this frontend would start where, as far as that has changed.
    pub(crate) fn note_asks(&mut self, now: Time) {
        let mut asks: SecondaryMap<InstanceKey, Want> = SecondaryMap::new();
        let mut wants = |at: InstanceKey, want: Want| {
            let first = asks.get(at).is_none_or(|own| (want.class, want.since) < (own.class, own.since));
            if first {
                asks.insert(at, want);
            }
        };
        let mut looks: SmallVec<[(InstanceKey, Time); 2]> = SmallVec::new();
        for (key, model) in &self.books.models {
            if let Some(ask) = self.wants_of(key) {
                let mut places: SmallVec<[(bool, bool, usize, InstanceKey); 16]> = SmallVec::new();
                for (at, place) in model.instances.iter().enumerate() {
                    let instance = &self.books.instances[*place];
                    if instance.grants != Some(0) || !instance.takes(key) || self.books.may_hang(*place, now)
                    {
                        continue;
                    }
                    let is_slow = instance.of(key).is_some_and(|served| !model.is_fast(served.slower));
                    let turn = (at + self.turn) % model.instances.len();
                    places.push((is_slow, instance.told.is_none(), turn, *place));
                }
                places.sort_unstable_by_key(|(is_slow, is_new, turn, _)| (*is_slow, *is_new, *turn));
                let run = self.books.shortest(key, 1).unwrap_or_default();
                let widens = ask.since.later(WIDENS * run);
                if now < widens {
                    places.truncate(usize::from(ask.jobs) + MORE);
                    looks.extend(places.first().map(|(.., place)| (*place, widens)));
                }
                places.iter().for_each(|(.., place)| wants(*place, ask));
            }
            // A copy of a query that has just started would have shown how such an instance is, if that had granted room.
            let unexplored = model.instances.iter().filter(|at| {
                let instance = &self.books.instances[**at];
                let is_slow = |of: &Served| !of.health.in_service() || !model.is_fast(of.slower);
                instance.grants == Some(0)
                    && (model.started == now || instance.told.is_some_and(|told| told.class == Class::Spare))
                    && instance.of(key).is_some_and(is_slow)
                    && self.books.is_unexplored(key, **at, now)
            });
            unexplored.for_each(|at| wants(*at, Want::spare(now)));
        }
        looks.into_iter().for_each(|(at, until)| self.look_at_instance(at, until));
        self.turn += 1;
        for (key, instance) in &mut self.books.instances {
            if instance.grants.is_none() {
                continue;
            }
            let wish = asks.get(key).copied();
            let run = instance
                .serves
                .first()
                .and_then(|served| self.books.models.get(served.model)?.times.expected(served.factor, 1));
            let younger = Duration::from_nanos((YOUNGER * run.unwrap_or_default()) as u64);
            let stays = match (wish, instance.told) {
                (None, None) => true,
                (Some(wish), Some(told)) => {
                    wish.class == told.class
                        && (wish.class == Class::Spare || wish.since.since(told.since) <= younger)
                }
                _ => false,
            };
            if !stays {
                let slots = instance.slots;
                let wish = wish.map(|ask| Want { jobs: ask.jobs.min(slots), ..ask });
                instance.told = wish;
                let Want { class, since, jobs } = wish.unwrap_or(Want { jobs: 0, ..Want::spare(now) });
                let ask = Ask { class, waited: now.since(since), jobs };
                self.actions.push(Action::Ask { instance: key, ask });
            }
        }
    }

    /// What a model's lines want in all.
    fn wants_of(&self, key: ModelKey) -> Option<Want> {
        let line = &self.books.models[key].line;
        let arrived = |query: &QueryKey| {
            let query = self.books.queries.get(*query)?;
            query.wanted(key).map(|_| query.arrived)
        };
        let want = |class, since, jobs| Want { class, since, jobs: u16::try_from(jobs).unwrap_or(u16::MAX) };
        let late = line.stand_ins.iter().chain(&line.again);
        let urgent: SmallVec<[Time; 4]> = late.filter_map(arrived).collect();
        if let Some(since) = urgent.iter().min() {
            return Some(want(Class::Late, *since, urgent.len() as u32 + line.waiting));
        }
        let first = line.first.0.iter().filter_map(|lane| lane.queue.iter().find_map(arrived)).min();
        let spare =
            || Some(want(Class::Spare, line.background.iter().find_map(arrived)?, line.background_waiting));
        first.map(|since| want(Class::First, since, line.waiting)).or_else(spare)
    }
}
