//! Asks and grants: which of several frontends may start the next job at an instance.
//!
//! Problem: frontends that do not know each other's load send queries to busy instances while others are idle. Three such
//! frontends more than double the p99 of a healthy fleet.
//!
//! Choice: each frontend says how many jobs it would start at an instance (an [`Ask`]), and the instance grants its room with a
//! [`Granter`]. It grants in the order of urgency, then of the age of the oldest want. An ask states what holds from now on, so a
//! later one replaces it. When a job ends and nobody asks, the grant stays with its frontend, which therefore seldom needs a
//! message; if another asks, an unused grant is recalled. A single frontend needs no grants.
//!
//! Grants are counted and have no names: a job uses any grant of its frontend. Each side may therefore be wrong by a few for a
//! moment, when messages cross, and nothing depends on it: a job without a grant waits like any other, and a grant that does not
//! come back is void after 20 ms. Its frontend may be frozen, so its ask is forgotten too, because the room would go to it
//! again. It is told that the instance is shared, as at the start, and asks again if it can.
//!
//! Rejected: grants to random frontends (join-idle-queue), because each job costs a message, possibly to a frontend without
//! queries. Probing for the shortest queue: the answer is stale when the query arrives, most of all at slow instances.

use std::time::Duration;

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
    /// How long that has waited. An age, because the two have different clocks.
    pub waited: Duration,
    /// Jobs that it would start; none withdraws the ask.
    pub jobs: u16,
}

/// What a frontend tells an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// What it would start from now on.
    Ask(Ask),
    /// It does not use a grant.
    Return,
}

/// What an instance tells a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It may start a job.
    Granted,
    /// Return a grant, unless all are used.
    Recalled,
    /// Others use the instance, so each job needs a grant; or no others do. Earlier asks are forgotten, and unused grants are void.
    Shared(bool),
}

/// An unused grant that is younger is not recalled: it may be under way, or its job on the way back.
const YOUNG: Duration = Duration::from_millis(1);

/// For spare jobs one that is younger is not recalled: its frontend will soon need it for others.
const IDLE: Duration = Duration::from_millis(100);

/// A recalled grant that was neither used nor returned after so long is void.
const VOID: Duration = Duration::from_millis(20);

/// The longest wait that counts: a frontend that is wrong must not precede all others for ever.
const LONGEST: Duration = Duration::from_secs(10);

/// The instance's side: who may start jobs. `F` names a frontend. Times are since an origin that the owner chooses.
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
    want: Option<Want>,
    /// Unused grants, the oldest first. A job uses the latest, so one whose job never comes grows old and is recalled.
    grants: Vec<Grant>,
    /// A grant has become void, and no job has come since: a recalled grant is void at once, so that others lose no more time.
    lapsed: bool,
}

/// An ask with the time since which its oldest want waits.
#[derive(Debug)]
struct Want {
    class: Class,
    since: Duration,
    jobs: u16,
}

#[derive(Debug)]
struct Grant {
    /// When it was given, or recalled.
    since: Duration,
    recalled: bool,
}

impl<F> Place<F> {
    fn new(frontend: F) -> Self {
        Self { frontend, want: None, grants: Vec::new(), lapsed: false }
    }

    /// When a recalled grant is void.
    fn void_at(&self, grant: &Grant) -> Duration {
        grant.since + if self.lapsed { Duration::ZERO } else { VOID }
    }
}

impl<F: Copy + PartialEq> Granter<F> {
    /// That of an instance that runs so many jobs at a time.
    pub fn new(slots: u16) -> Self {
        Self { slots, running: 0, frontends: Vec::new(), told: Vec::new() }
    }

    /// A frontend comes.
    pub fn join(&mut self, frontend: F) {
        self.frontends.push(Place::new(frontend));
        let news = match self.frontends.len() {
            1 => &[],
            2 => &self.frontends[..],
            more => &self.frontends[more - 1..],
        };
        self.told.extend(news.iter().map(|place| (place.frontend, Told::Shared(true))));
    }

    /// A frontend is gone, with its ask and its grants.
    pub fn leave(&mut self, now: Duration, frontend: F) {
        self.frontends.retain(|place| place.frontend != frontend);
        if let [only] = self.frontends.as_mut_slice() {
            *only = Place::new(only.frontend);
            self.told.push((only.frontend, Told::Shared(false)));
        }
        self.settle(now);
    }

    /// A frontend gives an order.
    pub fn hears(&mut self, now: Duration, frontend: F, order: Order) {
        let slots = self.slots;
        if let Some(place) = self.place(frontend) {
            match order {
                Order::Ask(Ask { class, waited, jobs }) => {
                    let since = now.saturating_sub(waited.min(LONGEST));
                    place.want = (jobs > 0).then_some(Want { class, since, jobs: jobs.min(slots) });
                }
                Order::Return => {
                    let recalled = place.grants.iter().position(|grant| grant.recalled);
                    match recalled {
                        Some(at) => drop(place.grants.remove(at)),
                        None => drop(place.grants.pop()),
                    }
                }
            }
        }
        self.settle(now);
    }

    /// A job of a frontend comes. If the frontend has a grant, the job uses it: it counts as running from now on, and comes before
    /// jobs without. Says whether it does.
    pub fn comes(&mut self, frontend: F) -> bool {
        let Some(place) = self.place(frontend) else { return false };
        place.lapsed = false;
        let used = place.grants.pop().is_some();
        self.running += u16::from(used);
        used
    }

    /// A job without a grant starts.
    pub fn begin(&mut self) {
        self.running += 1;
    }

    /// A job ends, or one with a grant is dropped before it starts. If nobody asks, the grant stays with this frontend.
    pub fn end(&mut self, now: Duration, frontend: Option<F>) {
        self.running = self.running.saturating_sub(1);
        self.settle(now);
        if let Some(frontend) = frontend.filter(|_| self.frontends.len() > 1 && self.free() > 0) {
            self.grant(now, frontend);
        }
    }

    /// Grants and recalls. Called by the others; and when [`next_look`](Self::next_look) has come.
    pub fn settle(&mut self, now: Duration) {
        for place in &mut self.frontends {
            if place.grants.iter().any(|grant| grant.recalled && place.void_at(grant) <= now) {
                *place = Place { lapsed: true, ..Place::new(place.frontend) };
                self.told.push((place.frontend, Told::Shared(true)));
            }
        }
        while self.free() > 0
            && let Some(first) = self.first()
        {
            self.grant(now, first);
        }
        let (missing, young) = self.missing();
        let grants = self.frontends.iter_mut().flat_map(|place| {
            let frontend = place.frontend;
            place.grants.iter_mut().map(move |grant| (frontend, grant))
        });
        let old = grants.filter(|(_, grant)| !grant.recalled && grant.since + young <= now);
        for (frontend, grant) in old.take(missing) {
            *grant = Grant { since: now, recalled: true };
            self.told.push((frontend, Told::Recalled));
        }
    }

    /// When a grant can be recalled or is void, if somebody asks.
    pub fn next_look(&self) -> Option<Duration> {
        self.first()?;
        let (missing, young) = self.missing();
        let grants = self.frontends.iter().flat_map(|place| place.grants.iter().map(move |own| (place, own)));
        let looks = grants.filter(|(_, grant)| grant.recalled || missing > 0);
        looks
            .map(|(place, grant)| if grant.recalled { place.void_at(grant) } else { grant.since + young })
            .min()
    }

    /// Takes what is to be told to frontends.
    pub fn told(&mut self) -> std::vec::Drain<'_, (F, Told)> {
        self.told.drain(..)
    }

    /// Unused grants.
    pub fn unused(&self) -> usize {
        self.frontends.iter().map(|place| place.grants.len()).sum()
    }

    /// Frontends that ask.
    pub fn asking(&self) -> usize {
        self.frontends.iter().filter(|place| place.want.is_some()).count()
    }

    /// Slots that no job and no grant takes.
    fn free(&self) -> usize {
        usize::from(self.slots).saturating_sub(usize::from(self.running) + self.unused())
    }

    /// Jobs that frontends would start beyond the grants that were recalled for them, and from which age on further ones are.
    fn missing(&self) -> (usize, Duration) {
        let jobs = |is_spare: bool| {
            let wants = self.frontends.iter().filter_map(|place| place.want.as_ref());
            let wants = wants.filter(|want| (want.class == Class::Spare) == is_spare);
            wants.map(|want| usize::from(want.jobs)).sum::<usize>()
        };
        let (jobs, young) = match jobs(false) {
            0 => (jobs(true), IDLE),
            urgent => (urgent, YOUNG),
        };
        let grants = self.frontends.iter().flat_map(|place| &place.grants);
        (jobs.saturating_sub(grants.filter(|grant| grant.recalled).count()), young)
    }

    /// The frontend whose ask is first.
    fn first(&self) -> Option<F> {
        let asks = self.frontends.iter().filter_map(|place| Some((place.want.as_ref()?, place.frontend)));
        asks.min_by_key(|(want, _)| (want.class, want.since)).map(|(_, frontend)| frontend)
    }

    fn grant(&mut self, now: Duration, frontend: F) {
        let Some(place) = self.place(frontend) else { return };
        place.grants.push(Grant { since: now, recalled: false });
        if let Some(want) = &mut place.want {
            want.jobs -= 1;
        }
        place.want.take_if(|want| want.jobs == 0);
        self.told.push((frontend, Told::Granted));
    }

    fn place(&mut self, frontend: F) -> Option<&mut Place<F>> {
        self.frontends.iter_mut().find(|place| place.frontend == frontend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn ask(class: Class, waited: u32) -> Order {
        Order::Ask(Ask { class, waited: waited * MS, jobs: 1 })
    }

    fn told(granter: &mut Granter<char>) -> Vec<(char, Told)> {
        granter.told().collect()
    }

    /// That of an instance with these frontends, which know of each other.
    fn shared(slots: u16, frontends: &[char]) -> Granter<char> {
        let mut granter = Granter::new(slots);
        frontends.iter().for_each(|frontend| granter.join(*frontend));
        granter.told().for_each(drop);
        granter
    }

    #[test]
    fn frontends_hear_whether_they_are_alone() {
        let mut granter = Granter::new(1);
        granter.join('a');
        assert_eq!(told(&mut granter), []);
        granter.end(MS, Some('a'));
        assert_eq!(told(&mut granter), [], "a single frontend needs no grant");
        granter.join('b');
        assert_eq!(told(&mut granter), [('a', Told::Shared(true)), ('b', Told::Shared(true))]);
        granter.join('c');
        assert_eq!(told(&mut granter), [('c', Told::Shared(true))]);
        granter.leave(MS, 'a');
        granter.leave(MS, 'c');
        assert_eq!(told(&mut granter), [('b', Told::Shared(false))]);
    }

    #[test]
    fn room_goes_to_the_most_urgent_then_to_the_oldest_and_then_stays() {
        let mut granter = shared(1, &['a', 'b', 'c']);
        granter.begin();
        granter.hears(10 * MS, 'a', ask(Class::First, 2));
        granter.hears(10 * MS, 'b', ask(Class::First, 5));
        granter.hears(10 * MS, 'c', ask(Class::Late, 1));
        assert_eq!(told(&mut granter), [], "it is busy");
        for (frontend, next) in [('a', 'c'), ('c', 'b'), ('b', 'a'), ('a', 'a')] {
            granter.end(20 * MS, Some(frontend));
            assert_eq!(told(&mut granter), [(next, Told::Granted)]);
            if frontend != next {
                assert!(granter.comes(next));
            }
        }
        // The grant stays with the last one until another asks, and is void if it does not come back.
        granter.hears(20 * MS, 'b', ask(Class::First, 0));
        assert_eq!((told(&mut granter), granter.next_look()), (vec![], Some(21 * MS)), "it may be under way");
        granter.settle(21 * MS);
        assert_eq!((told(&mut granter), granter.next_look()), (vec![('a', Told::Recalled)], Some(41 * MS)));
        granter.settle(41 * MS);
        assert_eq!(told(&mut granter), [('a', Told::Shared(true)), ('b', Told::Granted)]);
        assert!(!granter.comes('a'), "a late job of the void grant waits like any other");
    }

    #[test]
    fn frozen_frontend_holds_no_room_although_its_ask_is_the_oldest() {
        let mut granter = shared(2, &['a', 'b', 'f']);
        let all = Ask { class: Class::Late, waited: Duration::MAX, jobs: u16::MAX };
        granter.hears(MS, 'f', Order::Ask(all));
        assert_eq!(told(&mut granter), [('f', Told::Granted); 2]);
        granter.hears(2 * MS, 'a', ask(Class::First, 0));
        granter.hears(2 * MS, 'b', ask(Class::First, 0));
        assert_eq!(told(&mut granter), [('f', Told::Recalled); 2]);
        granter.settle(22 * MS);
        let again = [('f', Told::Shared(true)), ('a', Told::Granted), ('b', Told::Granted)];
        assert_eq!(told(&mut granter), again, "its ask does not count any more");
        ['a', 'b'].iter().for_each(|frontend| assert!(granter.comes(*frontend)));
        // If it asks again and still uses nothing, others wait for a millisecond only.
        granter.hears(30 * MS, 'f', Order::Ask(all));
        granter.end(30 * MS, None);
        granter.hears(30 * MS, 'a', ask(Class::First, 0));
        assert_eq!((told(&mut granter), granter.next_look()), (vec![('f', Told::Granted)], Some(31 * MS)));
        granter.settle(31 * MS);
        assert_eq!((told(&mut granter), granter.next_look()), (vec![('f', Told::Recalled)], Some(31 * MS)));
        granter.settle(31 * MS);
        assert_eq!(told(&mut granter), [('f', Told::Shared(true)), ('a', Told::Granted)]);
        assert!(granter.comes('a'));
        // A job shows that it lives.
        assert!(!granter.comes('f'));
        granter.hears(32 * MS, 'f', Order::Ask(all));
        granter.end(32 * MS, None);
        granter.hears(33 * MS, 'b', ask(Class::First, 0));
        assert_eq!(granter.next_look(), Some(53 * MS), "it has time to return a grant");
    }

    #[test]
    fn returned_and_forgotten_grants_are_granted_again() {
        let mut granter = shared(2, &['a', 'b']);
        for _ in 0..2 {
            granter.hears(MS, 'a', ask(Class::First, 0));
        }
        assert_eq!(told(&mut granter), [('a', Told::Granted); 2]);
        granter.hears(2 * MS, 'b', ask(Class::First, 0));
        assert_eq!(told(&mut granter), [('a', Told::Recalled)], "one is enough for one job");
        granter.hears(3 * MS, 'a', Order::Return);
        assert_eq!(told(&mut granter), [('b', Told::Granted)]);
        granter.hears(3 * MS, 'b', Order::Ask(Ask { class: Class::First, waited: MS, jobs: 3 }));
        granter.leave(4 * MS, 'a');
        assert!(told(&mut granter).contains(&('b', Told::Shared(false))), "it needs no grants from now on");
        assert_eq!((granter.unused(), granter.asking()), (0, 0));
    }

    /// A frontend forgets grants if its jobs are not sent, or if it forgets the instance and learns of it again.
    #[test]
    fn frontend_that_forgot_a_grant_gets_another_in_time() {
        let mut granter = shared(2, &['a', 'b']);
        granter.hears(MS, 'a', ask(Class::First, 0));
        let mut grants = 1;
        for now in 2..60 {
            // It uses each grant but the first, and always asks for the next job.
            granter.hears(now * MS, 'a', ask(Class::First, 0));
            granter.settle(now * MS);
            let granted = told(&mut granter).iter().filter(|(_, told)| *told == Told::Granted).count();
            grants += granted;
            (0..granted).for_each(|_| assert!(granter.comes('a')));
            if now == 50 {
                assert_eq!(granter.unused(), 0, "the forgotten grant is void");
            }
            granter.end(now * MS, None);
            granter.told().for_each(drop);
        }
        assert!(grants > 40, "one slot was always in use: {grants} grants");
    }

    #[test]
    fn spare_jobs_get_only_grants_that_were_long_unused() {
        let mut granter = shared(1, &['a', 'b']);
        granter.hears(MS, 'a', ask(Class::First, 0));
        granter.hears(2 * MS, 'b', ask(Class::Spare, 0));
        assert_eq!(told(&mut granter), [('a', Told::Granted)]);
        assert_eq!(granter.next_look(), Some(101 * MS));
        granter.settle(100 * MS);
        assert_eq!(told(&mut granter), []);
        granter.settle(101 * MS);
        assert_eq!(told(&mut granter), [('a', Told::Recalled)]);
        granter.hears(102 * MS, 'a', Order::Return);
        assert_eq!(told(&mut granter), [('b', Told::Granted)]);
    }

    #[test]
    fn wrong_ages_count_for_ten_seconds_at_most() {
        let mut granter = shared(1, &['a', 'b']);
        granter.begin();
        let now = Duration::from_secs(100);
        granter.hears(now, 'a', Order::Ask(Ask { class: Class::First, waited: Duration::MAX, jobs: 1 }));
        granter.hears(now + MS, 'b', Order::Ask(Ask { class: Class::First, waited: Duration::MAX, jobs: 1 }));
        granter.end(now + MS, None);
        assert_eq!(told(&mut granter), [('a', Told::Granted)]);
    }
}
