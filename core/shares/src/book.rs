//! The accounts of all who are served by the same instances.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::share::{Clock, Due, Share};
use super::usual::Usual;
use serde::{Deserialize, Serialize};

/// How far behind those that are served a share may be that waits, in seconds for each of its weight; and in jobs like the one
/// that starts. Whoever waits for instances of its own must not hold up the clock for all others: they would be long in debt to
/// everybody who comes new.
const MOST_BEHIND: f64 = 1.0;
const MOST_JOBS_BEHIND: f64 = 10.0;

/// The accounts of shares, which are called `K`, for jobs of models that are called `M`.
#[derive(Clone, Debug)]
pub struct Book<K, M> {
    clock: Clock,
    accounts: BTreeMap<K, Entry>,
    /// Shares that wait for something or run something: with many models, few of all.
    active: BTreeSet<K>,
    usual: BTreeMap<M, Usual>,
}

/// What a share is promised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// So many times the time of a share of weight 1, while both want more.
    pub weight: f64,
    /// Instances that its queries have within a service time, whatever others ask for.
    pub reserved: u32,
}

/// What a job is to its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Somebody asked for it.
    Query,
    /// It may help, and need not be done: a hedge, a parity, a stand-in, a replica.
    Redundancy,
}

/// A share's turn: the least is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// It has no reserved instance to get. Comes before all else: also before how urgent anything is.
    pub waits_its_turn: bool,
    /// Its place on the clock.
    pub due: Due,
}

/// What a job was charged when it began.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a job that ends puts its charge right"]
pub struct Charge {
    seconds: f64,
    work: Work,
}

/// How a share stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Account {
    /// What it is promised.
    pub terms: Terms,
    /// Seconds of instances' time that it used so far.
    pub used: f64,
    /// Seconds that its weight gave it while it wanted some.
    pub entitled: f64,
    /// Its jobs that wait.
    pub waiting: u32,
    /// Its jobs that run.
    pub running: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    share: Share,
    account: Account,
    /// Queries among its jobs that run.
    queries: u32,
    /// Somebody waits for it elsewhere.
    wished: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self { weight: 1.0, reserved: 0 }
    }
}

impl<K, M> Default for Book<K, M> {
    fn default() -> Self {
        Self {
            clock: Clock::default(),
            accounts: BTreeMap::new(),
            active: BTreeSet::new(),
            usual: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone, M: Ord + Clone> Book<K, M> {
    /// A share is promised this from now on. What it has had and what it waits for stay.
    pub fn promise(&mut self, key: &K, terms: Terms) {
        match self.accounts.get_mut(key) {
            Some(entry) => {
                entry.share.weigh(terms.weight);
                entry.account.terms = terms;
            }
            None => {
                self.accounts.insert(key.clone(), Entry::new(terms));
            }
        }
    }

    /// Whether a share has an account.
    pub fn knows(&self, key: &K) -> bool {
        self.accounts.contains_key(key)
    }

    /// A share's weight; that of one without an account is 1.
    pub fn weight(&self, key: &K) -> f64 {
        self.accounts.get(key).map_or(1.0, |entry| entry.share.weight())
    }

    /// A share's turn.
    pub fn turn(&self, key: &K, work: Work) -> Turn {
        let entry = self.accounts.get(key);
        let owed = work == Work::Query && entry.is_some_and(|entry| entry.unused() > 0);
        let due = entry.map_or(self.clock.due(), |entry| entry.share.due(&self.clock));
        Turn { waits_its_turn: !owed, due }
    }

    /// A job of a share waits.
    pub fn wait(&mut self, key: &K) {
        let clock = self.clock;
        let entry = self.entry(key);
        if !entry.waits() {
            entry.share.come(&clock);
        }
        entry.account.waiting += 1;
        self.note(key);
    }

    /// So many jobs of a share wait no more.
    pub fn leave(&mut self, key: &K, jobs: u32) {
        let account = &mut self.entry(key).account;
        account.waiting = account.waiting.saturating_sub(jobs);
        self.note(key);
    }

    /// Of all shares these are waited for elsewhere as well.
    pub fn wish<'a>(&mut self, keys: impl Iterator<Item = &'a K>)
    where
        K: 'a,
    {
        let wished: BTreeSet<&K> = keys.collect();
        let clock = self.clock;
        for (key, entry) in &mut self.accounts {
            let waited = entry.waits();
            entry.wished = wished.contains(key);
            if !waited && entry.wished {
                entry.share.come(&clock);
            }
        }
        let active = self.accounts.iter().filter(|(_, entry)| entry.is_active());
        self.active = active.map(|(key, _)| key.clone()).collect();
    }

    /// A job of a share starts; it waits no more.
    pub fn begin(&mut self, key: &K, model: &M, work: Work) -> Charge {
        let seconds = self.usual.get(model).copied().unwrap_or_default().expected();
        let active = self.active.iter().filter_map(|key| self.accounts.get(key));
        let waits = active.filter(|entry| entry.waits());
        let behind = waits.map(|entry| entry.share.due(&self.clock)).min();
        let mut clock = self.clock;
        let entry = self.entry(key);
        clock.follow(&entry.share, behind, MOST_BEHIND + MOST_JOBS_BEHIND * seconds);
        entry.share.charge(&clock, seconds);
        entry.account.running += 1;
        entry.queries += u32::from(work == Work::Query);
        self.clock = clock;
        self.note(key);
        Charge { seconds, work }
    }

    /// It ended. Its time counts as used by its share, and as due to all that wanted some, by weight.
    pub fn end(&mut self, key: &K, model: &M, charge: Charge, took: Duration) {
        let seconds = took.as_secs_f64();
        let active = self.active.iter().filter_map(|key| self.accounts.get(key));
        let all: f64 = active.map(|entry| entry.share.weight()).sum();
        for key in &self.active {
            if let Some(entry) = self.accounts.get_mut(key) {
                entry.account.entitled += seconds * entry.share.weight() / all;
            }
        }
        let charged = self.usual.entry(model.clone()).or_default().learn(took);
        let entry = self.entry(key);
        entry.account.used += seconds;
        entry.account.running = entry.account.running.saturating_sub(1);
        entry.queries = entry.queries.saturating_sub(u32::from(charge.work == Work::Query));
        entry.share.correct(charged - charge.seconds);
        self.note(key);
    }

    /// Reserved instances that their shares have not taken.
    pub fn unused(&self) -> u32 {
        self.accounts.values().map(Entry::unused).sum()
    }

    /// How shares stand.
    pub fn accounts(&self) -> impl Iterator<Item = (&K, &Account)> {
        self.accounts.iter().map(|(key, entry)| (key, &entry.account))
    }

    /// A share is no more, nor its model.
    pub fn close(&mut self, key: &K, model: &M) {
        self.accounts.remove(key);
        self.active.remove(key);
        self.usual.remove(model);
    }

    /// Forgets shares that nobody set up and that have nothing to ask or to make up for, and models with them.
    pub fn forget(&mut self, which: impl Fn(&K) -> bool) {
        let clock = self.clock;
        let busy = |entry: &Entry| entry.waits() || entry.account.running > 0 || !entry.share.is_even(&clock);
        self.accounts.retain(|key, entry| !which(key) || busy(entry));
    }

    /// Forgets what a model's jobs take.
    pub fn forget_models(&mut self, which: impl Fn(&M) -> bool) {
        self.usual.retain(|model, _| !which(model));
    }

    /// Notes whether a share still waits for something or runs something.
    fn note(&mut self, key: &K) {
        let is_active = self.accounts.get(key).is_some_and(Entry::is_active);
        if is_active && !self.active.contains(key) {
            self.active.insert(key.clone());
        } else if !is_active {
            self.active.remove(key);
        }
    }

    fn entry(&mut self, key: &K) -> &mut Entry {
        if !self.accounts.contains_key(key) {
            self.accounts.insert(key.clone(), Entry::new(Terms::default()));
        }
        self.accounts.get_mut(key).expect("it was just put there")
    }
}

impl Entry {
    fn new(terms: Terms) -> Self {
        let account = Account { terms, used: 0.0, entitled: 0.0, waiting: 0, running: 0 };
        Self { share: Share::new(terms.weight), account, queries: 0, wished: false }
    }

    fn waits(&self) -> bool {
        self.wished || self.account.waiting > 0
    }

    fn is_active(&self) -> bool {
        self.waits() || self.account.running > 0
    }

    fn unused(&self) -> u32 {
        self.account.terms.reserved.saturating_sub(self.queries)
    }
}

#[cfg(test)]
mod tests {
    use parm_random::Random;

    use super::*;

    struct Job {
        ends: u64,
        share: usize,
        nanos: u64,
        charge: Charge,
    }

    fn of_weight(weight: f64) -> Terms {
        Terms { weight, reserved: 0 }
    }

    /// What shares that always want more were given, in seconds: each has a weight and the mean seconds of its jobs.
    fn given(shares: &[(f64, f64)], instances: usize, jobs: usize, seed: u64) -> Vec<f64> {
        let mut book = Book::<usize, usize>::default();
        for (share, (weight, _)) in shares.iter().enumerate() {
            book.promise(&share, of_weight(*weight));
            (0..2).for_each(|_| book.wait(&share));
        }
        let (mut draw, mut now) = (Random::of(seed, [0]), 0);
        let (mut given, mut running) = (vec![0.0; shares.len()], Vec::<Job>::new());
        for _ in 0..jobs {
            if running.len() == instances {
                let first = (0..instances).min_by_key(|index| running[*index].ends).unwrap();
                let Job { ends, share, nanos, charge } = running.swap_remove(first);
                now = ends;
                book.end(&share, &share, charge, Duration::from_nanos(nanos));
                given[share] += nanos as f64 / 1e9;
            }
            let share = (0..shares.len()).min_by_key(|share| book.turn(share, Work::Query)).unwrap();
            let nanos = (shares[share].1 * draw.exponential() * 1e9) as u64;
            let charge = book.begin(&share, &share, Work::Query);
            running.push(Job { ends: now + nanos, share, nanos, charge });
        }
        for (share, account) in book.accounts() {
            assert!((account.used - given[*share]).abs() < 1e-6, "{share} {account:?}");
            let of = account.entitled / book.accounts().map(|(_, account)| account.entitled).sum::<f64>();
            let weights: f64 = shares.iter().map(|(weight, _)| weight).sum();
            assert!((of - shares[*share].0 / weights).abs() < 1e-6, "all wanted more all the time");
        }
        given
    }

    /// A job of a share, for so long; nothing else happens meanwhile.
    fn run(book: &mut Book<&'static str, &'static str>, share: &'static str, millis: u64) {
        let charge = book.begin(&share, &share, Work::Query);
        book.end(&share, &share, charge, Duration::from_millis(millis));
    }

    #[test]
    fn time_is_shared_by_weight_however_long_jobs_are() {
        for instances in [1, 4] {
            let shares = [(1.0, 0.1), (1.0, 0.005), (2.0, 0.02)];
            let given = given(&shares, instances, 40_000, 1);
            let all: f64 = given.iter().sum();
            let parts: Vec<f64> = given.iter().map(|given| given / all).collect();
            for (part, wanted) in parts.iter().zip([0.25, 0.25, 0.5]) {
                assert!((part - wanted).abs() < 0.02, "{instances}: {parts:?}");
            }
        }
    }

    #[test]
    fn who_asks_now_and_then_is_next_and_has_saved_nothing_up() {
        let mut book = Book::default();
        book.wait(&"flood");
        (0..100).for_each(|_| run(&mut book, "flood", 100));
        book.wait(&"light");
        assert!(book.turn(&"light", Work::Query) < book.turn(&"flood", Work::Query));
        let mut turns = 0;
        while book.turn(&"light", Work::Query) <= book.turn(&"flood", Work::Query) {
            run(&mut book, "light", 5);
            turns += 1;
        }
        assert!((19..=21).contains(&turns), "{turns}: as much as one job of the flood, not as a hundred");
    }

    #[test]
    fn who_is_served_out_of_turn_takes_nothing_from_those_that_are_behind() {
        let mut book = Book::default();
        ["a", "b", "late"].iter().for_each(|share| book.wait(share));
        for share in ["a", "b", "late"] {
            run(&mut book, share, 10);
        }
        run(&mut book, "a", 10);
        let apart = |book: &Book<&'static str, &'static str>| {
            (book.turn(&"b", Work::Query).due, book.turn(&"a", Work::Query).due)
        };
        let before = apart(&book);
        (0..20).for_each(|_| run(&mut book, "late", 10));
        assert_eq!(apart(&book), before, "what is late went first, and the others stand as they stood");
        assert!(before.0 < before.1);
    }

    #[test]
    fn who_waits_for_instances_of_its_own_leaves_others_no_debt_without_end() {
        let mut book = Book::default();
        ["stuck", "busy"].iter().for_each(|share| book.wait(share));
        (0..1000).for_each(|_| run(&mut book, "busy", 100));
        let mut turns = 0;
        book.wait(&"new");
        while book.turn(&"new", Work::Query) <= book.turn(&"busy", Work::Query) {
            run(&mut book, "new", 100);
            turns += 1;
        }
        assert!(turns <= 22, "{turns} turns in a row, where 1000 were missed by another");
    }

    #[test]
    fn an_instance_that_hangs_costs_a_share_no_more_than_a_few_jobs() {
        let mut book = Book::default();
        ["hangs", "other"].iter().for_each(|share| book.wait(share));
        let turns = |book: &mut Book<&'static str, &'static str>| {
            let mut turns = 0;
            while book.turn(&"other", Work::Query) < book.turn(&"hangs", Work::Query) {
                run(book, "other", 10);
                turns += 1;
            }
            turns
        };
        run(&mut book, "other", 10);
        run(&mut book, "hangs", 10);
        turns(&mut book);
        run(&mut book, "hangs", 30_000);
        let missed = turns(&mut book);
        assert!((9..=11).contains(&missed), "{missed} jobs of 10 ms for one that hung");
        // What jobs take from now on is learned all the same.
        (0..40).for_each(|_| run(&mut book, "hangs", 1000));
        turns(&mut book);
        run(&mut book, "hangs", 1000);
        let missed = turns(&mut book);
        assert!((95..=105).contains(&missed), "{missed}");
    }

    #[test]
    fn a_share_of_two_models_pays_for_the_long_as_for_the_short() {
        let mut book = Book::<&str, &str>::default();
        let jobs = |book: &mut Book<&'static str, &'static str>, model, millis, count| {
            for _ in 0..count {
                let charge = book.begin(&"mixed", &model, Work::Query);
                book.end(&"mixed", &model, charge, Duration::from_millis(millis));
            }
        };
        ["mixed", "other"].iter().for_each(|share| book.wait(share));
        jobs(&mut book, "long", 100, 1);
        jobs(&mut book, "short", 1, 400);
        jobs(&mut book, "long", 100, 1);
        let mut turns = 0;
        while book.turn(&"other", Work::Query) < book.turn(&"mixed", Work::Query) {
            run(&mut book, "other", 100);
            turns += 1;
        }
        assert!((5..=7).contains(&turns), "{turns} times 100 ms for 600 ms");
    }

    #[test]
    fn what_is_reserved_comes_first_until_it_is_taken_and_redundancy_has_none_of_it() {
        let mut book = Book::<&str, &str>::default();
        book.promise(&"kept", Terms { weight: 1.0, reserved: 2 });
        ["kept", "flood"].iter().for_each(|share| (0..9).for_each(|_| book.wait(share)));
        // It is far ahead on the clock, and still first.
        run(&mut book, "flood", 10);
        (0..50).for_each(|_| run(&mut book, "kept", 10));
        let first = |book: &Book<&'static str, &'static str>, work| {
            book.turn(&"kept", work) < book.turn(&"flood", Work::Query)
        };
        assert!(first(&book, Work::Query) && !first(&book, Work::Redundancy));
        let spare = book.begin(&"kept", &"m", Work::Redundancy);
        assert_eq!(book.unused(), 2, "redundancy takes none");
        let one = book.begin(&"kept", &"m", Work::Query);
        assert!(first(&book, Work::Query) && book.unused() == 1);
        let two = book.begin(&"kept", &"m", Work::Query);
        assert!(!first(&book, Work::Query) && book.unused() == 0);
        for charge in [two, spare, one] {
            book.end(&"kept", &"m", charge, Duration::from_millis(10));
        }
        assert_eq!(book.unused(), 2);
    }

    #[test]
    fn a_weight_that_is_none_counts_as_one() {
        let mut book = Book::default();
        for (share, weight) in [("none", 0.0), ("one", 1.0)] {
            book.promise(&share, of_weight(weight));
            book.wait(&share);
        }
        ["none", "one"].into_iter().for_each(|share| run(&mut book, share, 10));
        assert_eq!(book.turn(&"none", Work::Query), book.turn(&"one", Work::Query));
    }
}
