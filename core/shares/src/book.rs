//! Accounts of the shares that use the same instances, and the order in which they are served.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::share::{Clock, Due, Share};
use super::usual::Usual;
use serde::{Deserialize, Serialize};

/// How far a waiting share may hold the clock back: in seconds per unit of weight, and in jobs like the one that
/// starts. A share that waits for instances of its own must not hold back the clock for all others, as they would owe
/// new shares a large debt.
const MOST_BEHIND: f64 = 1.0;
const MOST_JOBS_BEHIND: f64 = 10.0;

/// Accounts of shares with key `K`, for jobs of models with key `M`.
#[derive(Clone, Debug)]
pub struct Book<K, M> {
    clock: Clock,
    accounts: BTreeMap<K, Entry>,
    /// Shares with a waiting or running job: few, even if there are many models.
    active: BTreeSet<K>,
    usual: BTreeMap<M, Usual>,
}

/// A share's configured weight and reservation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Multiple of the time that a share of weight 1 receives while both have waiting jobs.
    pub weight: f64,
    /// Instances that the share's queries receive within one service time, regardless of other load.
    pub reserved: u32,
}

/// Kind of a job, as shares count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A client waits for it.
    Query,
    /// A redundant job: a hedge, parity, stand-in or replica.
    Redundancy,
}

/// A share's place in the order of service; the least is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// The share has no unused reservation. Compared first, even before urgency.
    pub waits_its_turn: bool,
    /// Place on the clock.
    pub due: Due,
}

/// Amount that a job was charged when it began.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a job that ends puts its charge right"]
pub struct Charge {
    seconds: f64,
    work: Work,
}

/// State of a share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Account {
    /// Configured weight and reservation.
    pub terms: Terms,
    /// Seconds of instance time used so far.
    pub used: f64,
    /// Seconds that its weight entitled it to while it had jobs.
    pub entitled: f64,
    /// Waiting jobs.
    pub waiting: u32,
    /// Running jobs.
    pub running: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    share: Share,
    account: Account,
    /// Queries among the running jobs.
    queries: u32,
    /// Another process has a waiting job of this share.
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
    /// Sets a share's weight and reservation. Its usage and its waiting jobs stay.
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

    /// A share's weight; 1 without an account.
    pub fn weight(&self, key: &K) -> f64 {
        self.accounts.get(key).map_or(1.0, |entry| entry.share.weight())
    }

    /// A share's turn for this kind of work.
    pub fn turn(&self, key: &K, work: Work) -> Turn {
        let entry = self.accounts.get(key);
        let owed = work == Work::Query && entry.is_some_and(|entry| entry.unused() > 0);
        let due = entry.map_or(self.clock.due(), |entry| entry.share.due(&self.clock));
        Turn { waits_its_turn: !owed, due }
    }

    /// Counts a job of a share as waiting.
    pub fn wait(&mut self, key: &K) {
        let clock = self.clock;
        let entry = self.entry(key);
        if !entry.waits() {
            entry.share.come(&clock);
        }
        entry.account.waiting += 1;
        self.note(key);
    }

    /// Removes waiting jobs of a share.
    pub fn leave(&mut self, key: &K, jobs: u32) {
        let account = &mut self.entry(key).account;
        account.waiting = account.waiting.saturating_sub(jobs);
        self.note(key);
    }

    /// Sets the shares that also have jobs waiting at other processes.
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

    /// Starts a waiting job of a share and charges its expected duration.
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

    /// Ends a job. Its time counts as used by its share, and as an entitlement of all active shares, by weight.
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

    /// Takes over what a share used while it was the only one and no book was kept.
    pub fn carry(&mut self, key: &K, seconds: f64) {
        let account = &mut self.entry(key).account;
        (account.used, account.entitled) = (account.used + seconds, account.entitled + seconds);
    }

    /// Reserved instances that their shares do not use.
    pub fn unused(&self) -> u32 {
        self.accounts.values().map(Entry::unused).sum()
    }

    /// All accounts.
    pub fn accounts(&self) -> impl Iterator<Item = (&K, &Account)> {
        self.accounts.iter().map(|(key, entry)| (key, &entry.account))
    }

    /// Removes a share and its model.
    pub fn close(&mut self, key: &K, model: &M) {
        self.accounts.remove(key);
        self.active.remove(key);
        self.usual.remove(model);
    }

    /// Removes idle shares that `which` selects and that have no debt.
    pub fn forget(&mut self, which: impl Fn(&K) -> bool) {
        let clock = self.clock;
        let busy = |entry: &Entry| entry.waits() || entry.account.running > 0 || !entry.share.is_even(&clock);
        self.accounts.retain(|key, entry| !which(key) || busy(entry));
    }

    /// Forgets the usual durations of models that `which` selects.
    pub fn forget_models(&mut self, which: impl Fn(&M) -> bool) {
        self.usual.retain(|model, _| !which(model));
    }

    /// Updates whether a share has waiting or running jobs.
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
        self.accounts.get_mut(key).expect("inserted above")
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

    /// Seconds that shares with constant demand received; each has a weight and a mean job duration in seconds.
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
            assert!(
                (of - shares[*share].0 / weights).abs() < 1e-6,
                "entitlements follow weights under constant demand"
            );
        }
        given
    }

    /// Runs one job of a share while nothing else happens.
    fn run(book: &mut Book<&'static str, &'static str>, share: &'static str, millis: u64) {
        let charge = book.begin(&share, &share, Work::Query);
        book.end(&share, &share, charge, Duration::from_millis(millis));
    }

    #[test]
    fn time_is_shared_by_weight_for_short_and_long_jobs() {
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
    fn occasional_share_is_served_next_without_savings() {
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
        assert!((19..=21).contains(&turns), "{turns} turns: expected the time of one job of the flood");
    }

    #[test]
    fn share_served_out_of_turn_keeps_lag_of_others() {
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
        assert_eq!(apart(&book), before, "late work must not move other shares");
        assert!(before.0 < before.1);
    }

    #[test]
    fn share_stuck_on_own_instances_causes_bounded_debt() {
        let mut book = Book::default();
        ["stuck", "busy"].iter().for_each(|share| book.wait(share));
        (0..1000).for_each(|_| run(&mut book, "busy", 100));
        let mut turns = 0;
        book.wait(&"new");
        while book.turn(&"new", Work::Query) <= book.turn(&"busy", Work::Query) {
            run(&mut book, "new", 100);
            turns += 1;
        }
        assert!(turns <= 22, "{turns} turns in a row");
    }

    #[test]
    fn hung_instance_costs_its_share_a_few_jobs() {
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
        // Later jobs still update the average.
        (0..40).for_each(|_| run(&mut book, "hangs", 1000));
        turns(&mut book);
        run(&mut book, "hangs", 1000);
        let missed = turns(&mut book);
        assert!((95..=105).contains(&missed), "{missed}");
    }

    #[test]
    fn first_job_of_a_model_that_hangs_costs_its_share_little() {
        let mut book = Book::default();
        ["hangs", "other"].iter().for_each(|share| book.wait(share));
        run(&mut book, "other", 10);
        run(&mut book, "hangs", 30_000);
        let mut turns = 0;
        while book.turn(&"other", Work::Query) < book.turn(&"hangs", Work::Query) {
            run(&mut book, "other", 10);
            turns += 1;
        }
        assert!(turns <= 110, "{turns} jobs of 10 ms, {} s, before the next job of the share", turns / 100);
    }

    #[test]
    fn share_of_two_models_pays_for_long_and_short_jobs() {
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
    fn reservation_precedes_all_until_used_by_queries() {
        let mut book = Book::<&str, &str>::default();
        book.promise(&"kept", Terms { weight: 1.0, reserved: 2 });
        ["kept", "flood"].iter().for_each(|share| (0..9).for_each(|_| book.wait(share)));
        // Its reservation puts it first although it is far ahead on the clock.
        run(&mut book, "flood", 10);
        (0..50).for_each(|_| run(&mut book, "kept", 10));
        let first = |book: &Book<&'static str, &'static str>, work| {
            book.turn(&"kept", work) < book.turn(&"flood", Work::Query)
        };
        assert!(first(&book, Work::Query) && !first(&book, Work::Redundancy));
        let spare = book.begin(&"kept", &"m", Work::Redundancy);
        assert_eq!(book.unused(), 2, "redundancy must not use a reservation");
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
    fn invalid_weight_counts_as_one() {
        let mut book = Book::default();
        for (share, weight) in [("none", 0.0), ("one", 1.0)] {
            book.promise(&share, of_weight(weight));
            book.wait(&share);
        }
        ["none", "one"].into_iter().for_each(|share| run(&mut book, share, 10));
        assert_eq!(book.turn(&"none", Work::Query), book.turn(&"one", Work::Query));
    }
}
