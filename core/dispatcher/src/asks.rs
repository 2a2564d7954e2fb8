//! Several frontends at one instance: each says how many jobs it would start there (an *ask*), and the instance grants its room.
//!
//! Problem: frontends that do not know each other's load send queries to busy instances while others are idle. Three such
//! frontends more than double the p99 of a healthy fleet.
//!
//! Choice: an instance that several frontends use has room for one of them only while it has granted some. A frontend with wants
//! that no instance takes asks at a few instances more than it has wants, the fastest first, and binds a query to an instance only
//! when a grant comes. The instance ([`Granter`]) grants in the order of urgency, then of the age of the oldest want. An ask states
//! what holds from now on, so a later one replaces it. When a job ends and nobody asks, the grant stays with its frontend, which
//! therefore seldom needs a message; if another asks, an unused grant is recalled.
//!
//! An ask is renewed when its oldest want is younger by an eighth of a run, because otherwise later queries go before older ones
//! of others (worth 13 to 17 % of the gap). Rejected: estimates of the queues of others (the gap of one sick instance is 7 % worse),
//! more asks as time passes (40 % of all messages for a millisecond).
//!
//! A single frontend needs no grants, and an instance that cannot grant is used by what each frontend observes.

use std::time::Duration;

use smallvec::SmallVec;

use crate::dispatcher::{Action, Dispatcher};
use crate::instance::InstanceKey;
use crate::model::ModelKey;
use crate::time::Time;

/// How urgent the oldest want of an ask is. The least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A retry, a copy, or the stand-in of a late query.
    Late,
    /// A query that has not run yet.
    First,
    /// A copy that no query waits for.
    Spare,
}

/// What a frontend would start at an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The urgency of its oldest want.
    pub class: Class,
    /// Since when that waits.
    pub since: Time,
    /// Jobs that it would start; none withdraws the ask.
    pub jobs: u16,
}

/// A frontend asks at so many instances more than it has wants: three nearly always include one that is soon idle.
const MORE: usize = 2;

/// The part of a run after which it asks everywhere: then all of these were busy.
const WIDENS: f64 = 1.0 / 32.0;

/// The part of a run by which the oldest want is younger when an ask is renewed.
const YOUNGER: f64 = 1.0 / 8.0;

impl<P: Clone, O> Dispatcher<P, O> {
    /// Whether several frontends use an instance, so that it has room only when it grants some.
    pub fn shared(&mut self, now: Time, key: InstanceKey, is_shared: bool) {
        let Some(instance) = self.books.instances.get_mut(key) else { return };
        if instance.grants.is_some() != is_shared {
            instance.grants = is_shared.then_some(0);
            instance.told = None;
            self.sharing = self.sharing + usize::from(is_shared) - usize::from(!is_shared);
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
        let mut asks: Vec<(InstanceKey, Ask)> = Vec::new();
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
                asks.extend(places.iter().map(|(.., place)| (*place, ask)));
            }
            let unexplored = model.instances.iter().filter(|at| {
                self.books.instances[**at].grants == Some(0) && self.books.is_unexplored(key, **at, now)
            });
            let spare = Ask { class: Class::Spare, since: now, jobs: 1 };
            asks.extend(unexplored.map(|at| (*at, spare)));
        }
        looks.into_iter().for_each(|(at, until)| self.look_at_instance(at, until));
        self.turn += 1;
        for (key, instance) in &mut self.books.instances {
            if instance.grants.is_none() {
                continue;
            }
            let of_all = asks.iter().filter(|(at, _)| *at == key).map(|(_, ask)| *ask);
            let wish = of_all.min_by_key(|ask| (ask.class, ask.since));
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
                let wish = wish.map(|ask| Ask { jobs: ask.jobs.min(slots), ..ask });
                let withdrawn = Ask { class: Class::Spare, since: now, jobs: 0 };
                instance.told = wish;
                self.actions.push(Action::Ask { instance: key, ask: wish.unwrap_or(withdrawn) });
            }
        }
    }

    /// What a model's lines want in all.
    fn wants_of(&self, key: ModelKey) -> Option<Ask> {
        let line = &self.books.models[key].line;
        let arrived = |query: &crate::query::QueryKey| {
            let query = self.books.queries.get(*query)?;
            query.wanted(key).map(|_| query.arrived)
        };
        let late = line.stand_ins.iter().chain(&line.again);
        let urgent: SmallVec<[Time; 4]> = late.filter_map(arrived).collect();
        let jobs = u16::try_from(urgent.len() as u32 + line.waiting).unwrap_or(u16::MAX);
        if let Some(since) = urgent.iter().min() {
            return Some(Ask { class: Class::Late, since: *since, jobs });
        }
        let first = line.first.0.iter().filter_map(|lane| lane.queue.iter().find_map(arrived)).min();
        first.map(|since| Ask { class: Class::First, since, jobs })
    }
}

/// What an instance tells a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It may start a job.
    Granted,
    /// Return a grant, unless it is used.
    Recalled,
    /// Others use the instance, so each job needs a grant; or no others do.
    Shared(bool),
}

/// A grant that is younger is not recalled: it may be under way, or its job on the way back.
const YOUNG: Duration = Duration::from_millis(1);

/// A recalled grant that was neither used nor returned after so long is void.
const VOID: Duration = Duration::from_millis(20);

/// The instance's side: who may start jobs. `F` names a frontend.
#[derive(Debug)]
pub struct Granter<F> {
    slots: u16,
    running: u16,
    frontends: Vec<Place<F>>,
    told: Vec<(F, Told)>,
}

#[derive(Debug)]
struct Place<F> {
    frontend: F,
    ask: Option<Ask>,
    /// Unused grants, and when the latest was given.
    held: u16,
    since: Time,
    recalled: bool,
}

impl<F: Copy + PartialEq> Granter<F> {
    /// That of an instance that runs so many jobs at a time.
    pub fn new(slots: u16) -> Self {
        Self { slots, running: 0, frontends: Vec::new(), told: Vec::new() }
    }

    /// A frontend comes.
    pub fn join(&mut self, frontend: F) {
        let since = Time::ZERO;
        self.frontends.push(Place { frontend, ask: None, held: 0, since, recalled: false });
        match self.frontends.len() {
            1 => {}
            2 => self.told.extend(self.frontends.iter().map(|place| (place.frontend, Told::Shared(true)))),
            _ => self.told.push((frontend, Told::Shared(true))),
        }
    }

    /// A frontend is gone, with its ask and its grants.
    pub fn leave(&mut self, now: Time, frontend: F) {
        self.frontends.retain(|place| place.frontend != frontend);
        if let [only] = self.frontends.as_mut_slice() {
            (only.ask, only.held) = (None, 0);
            self.told.push((only.frontend, Told::Shared(false)));
        }
        self.settle(now);
    }

    /// A frontend asks. Its ask replaces an earlier one.
    pub fn asks(&mut self, now: Time, frontend: F, ask: Ask) {
        if let Some(place) = self.place(frontend) {
            place.ask = Some(ask).filter(|ask| ask.jobs > 0);
        }
        self.settle(now);
    }

    /// A frontend returns a grant.
    pub fn returned(&mut self, now: Time, frontend: F) {
        if let Some(place) = self.place(frontend) {
            (place.held, place.recalled) = (place.held.saturating_sub(1), false);
        }
        self.settle(now);
    }

    /// A job of a frontend comes. Says whether its grant holds; otherwise it waits like any other.
    pub fn comes(&mut self, frontend: F) -> bool {
        let Some(place) = self.place(frontend) else { return false };
        let holds = place.held > 0;
        (place.held, place.recalled) = (place.held.saturating_sub(1), false);
        holds
    }

    /// A job starts.
    pub fn begin(&mut self) {
        self.running += 1;
    }

    /// A job of a frontend ends. If nobody asks, its grant stays there.
    pub fn end(&mut self, now: Time, frontend: F) {
        self.running = self.running.saturating_sub(1);
        self.settle(now);
        if self.frontends.len() > 1 && self.free() > 0 {
            self.grant(now, |place| place.frontend == frontend);
        }
    }

    /// Slots that no job and no grant takes.
    pub fn free(&self) -> u16 {
        let held: u16 = self.frontends.iter().map(|place| place.held).sum();
        self.slots.saturating_sub(self.running + held)
    }

    /// Grants and recalls. Called by the others; and when [`next_look`](Self::next_look) has come.
    pub fn settle(&mut self, now: Time) {
        for place in self.frontends.iter_mut().filter(|place| place.recalled && place.since + VOID <= now) {
            (place.held, place.recalled) = (0, false);
        }
        while let Some(first) = self.first() {
            if self.free() > 0 {
                self.grant(now, |place| place.frontend == first);
                continue;
            }
            let is_idle = |place: &&mut Place<F>| {
                place.held > 0 && !place.recalled && place.frontend != first && place.since + YOUNG <= now
            };
            if let Some(place) = self.frontends.iter_mut().find(is_idle) {
                (place.recalled, place.since) = (true, now);
                self.told.push((place.frontend, Told::Recalled));
            }
            return;
        }
    }

    /// When a grant can be recalled or is void, if somebody asks.
    pub fn next_look(&self) -> Option<Time> {
        let first = self.first()?;
        let held = self.frontends.iter().filter(|place| place.held > 0);
        let held = held.filter(|place| place.recalled || place.frontend != first);
        held.map(|place| place.since + if place.recalled { VOID } else { YOUNG }).min()
    }

    /// Takes what is to be told to frontends.
    pub fn told(&mut self) -> std::vec::Drain<'_, (F, Told)> {
        self.told.drain(..)
    }

    /// The frontend whose ask is first.
    fn first(&self) -> Option<F> {
        let asks = self.frontends.iter().filter_map(|place| Some((place.ask?, place.frontend)));
        asks.min_by_key(|(ask, _)| (ask.class, ask.since)).map(|(_, frontend)| frontend)
    }

    fn grant(&mut self, now: Time, which: impl Fn(&Place<F>) -> bool) {
        let Some(place) = self.frontends.iter_mut().find(|place| which(place)) else { return };
        place.held += 1;
        place.since = now;
        if let Some(ask) = &mut place.ask {
            ask.jobs -= 1;
        }
        place.ask = place.ask.filter(|ask| ask.jobs > 0);
        self.told.push((place.frontend, Told::Granted));
    }

    fn place(&mut self, frontend: F) -> Option<&mut Place<F>> {
        self.frontends.iter_mut().find(|place| place.frontend == frontend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn ask(class: Class, since: u64) -> Ask {
        Ask { class, since: at(since), jobs: 1 }
    }

    #[test]
    fn room_goes_to_the_most_urgent_then_to_the_oldest_and_then_stays() {
        let mut granter = Granter::new(1);
        granter.join('a');
        granter.join('b');
        granter.join('c');
        let shared = [('a', Told::Shared(true)), ('b', Told::Shared(true)), ('c', Told::Shared(true))];
        assert_eq!(granter.told().collect::<Vec<_>>(), shared);
        granter.begin();
        granter.asks(at(10), 'a', ask(Class::First, 8));
        granter.asks(at(10), 'b', ask(Class::First, 5));
        granter.asks(at(10), 'c', ask(Class::Late, 9));
        let told = |granter: &mut Granter<char>| granter.told().collect::<Vec<_>>();
        assert_eq!(told(&mut granter), [], "it is busy");
        for (frontend, next) in [('a', 'c'), ('c', 'b'), ('b', 'a'), ('a', 'a')] {
            granter.end(at(20), frontend);
            assert_eq!(told(&mut granter), [(next, Told::Granted)]);
            if frontend != next || next != 'a' {
                assert!(granter.comes(next));
                granter.begin();
            }
        }
        // The grant stays with the last one until another asks, and is void if it does not come back.
        granter.asks(at(20), 'b', ask(Class::First, 20));
        assert_eq!((told(&mut granter), granter.next_look()), (vec![], Some(at(21))), "it may be under way");
        granter.settle(at(21));
        assert_eq!(told(&mut granter), [('a', Told::Recalled)]);
        granter.settle(at(41));
        assert_eq!(told(&mut granter), [('b', Told::Granted)]);
        assert!(!granter.comes('a'), "a late job of the void grant waits like any other");
        granter.leave(at(42), 'a');
        granter.leave(at(42), 'c');
        assert_eq!(told(&mut granter), [('b', Told::Shared(false))]);
    }
}
