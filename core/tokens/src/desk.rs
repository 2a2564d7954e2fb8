//! A worker's half: which tokens are out, and who has reserved.
//!
//! It has no clock, no I/O and no queue of jobs. Whoever drives it tells it the time, asks it before a job starts, and says
//! how jobs and reservations compare.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::{Class, Frontend, Grant, Message, Note, Order, Settings, Token};

/// The tokens and reservations of one worker. `K` is what shares go by: the model's name.
#[derive(Debug)]
pub struct Desk<K> {
    settings: Settings,
    /// Jobs that the worker can run at a time.
    slots: usize,
    /// Jobs that run.
    running: usize,
    /// Jobs that came with a token and are about to run.
    promised: usize,
    /// Instances that are reserved and that their shares have not taken.
    kept: usize,
    /// Frontends that take part.
    frontends: BTreeSet<Frontend>,
    reservations: Vec<Reservation<K>>,
    /// In the order in which they were given.
    out: VecDeque<Out>,
    next: u32,
    mail: Vec<(Frontend, Message)>,
}

/// A frontend's wish for the next instance that is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation<K> {
    /// Whose it is.
    pub frontend: Frontend,
    /// What the job is of.
    pub key: K,
    /// How urgent it is.
    pub class: Class,
    /// Its place in the order of arrival, among jobs.
    pub number: u64,
    /// What its frontend calls it.
    pub note: Note,
}

/// A token that was given.
#[derive(Clone, Copy, Debug)]
struct Out {
    token: Token,
    holder: Frontend,
    since: Duration,
    lease: Option<Duration>,
    recalled: Option<Duration>,
}

impl<K: Ord + Clone> Desk<K> {
    /// The desk of a worker that runs so many jobs at a time.
    pub fn new(slots: usize, settings: Settings) -> Self {
        Self {
            settings,
            slots,
            running: 0,
            promised: 0,
            kept: 0,
            frontends: BTreeSet::new(),
            reservations: Vec::new(),
            out: VecDeque::new(),
            next: 0,
            mail: Vec::new(),
        }
    }

    /// So many instances are reserved by now, and their shares have not taken them: the last tokens are for queries only.
    pub fn keep(&mut self, instances: usize) {
        self.kept = instances;
    }

    /// A frontend takes part.
    pub fn join(&mut self, frontend: Frontend) {
        let before = self.frontends.len();
        self.frontends.insert(frontend);
        match self.frontends.len() {
            1 => self.say_that_one_is_alone(),
            2 if before == 1 => {
                let others = self.frontends.iter().filter(|known| **known != frontend);
                self.mail.extend(others.map(|other| (*other, Message::Shared)));
            }
            _ => {}
        }
    }

    /// A frontend is gone, and what it held and reserved with it.
    pub fn leave(&mut self, frontend: Frontend) {
        self.frontends.remove(&frontend);
        self.out.retain(|out| out.holder != frontend);
        self.reservations.retain(|reservation| reservation.frontend != frontend);
        self.say_that_one_is_alone();
    }

    /// What is in the mail for who is gone goes nowhere.
    fn say_that_one_is_alone(&mut self) {
        if let (Some(only), 1) = (self.frontends.first(), self.frontends.len()) {
            let slots = u16::try_from(self.slots).unwrap_or(u16::MAX);
            self.mail.push((*only, Message::Alone(slots)));
        }
    }

    /// A frontend says something; `number` is its place among what arrives.
    pub fn told(&mut self, frontend: Frontend, order: Order<K>, number: u64) {
        if !self.frontends.contains(&frontend) {
            return; // it is gone
        }
        match order {
            Order::Reserve(key, class, note) => {
                let same = |known: &&mut Reservation<K>| {
                    known.frontend == frontend && known.key == key && known.class == class
                };
                if let Some(known) = self.reservations.iter_mut().find(same) {
                    known.note = note;
                } else if self.reservations.len() < self.settings.most_reservations {
                    self.reservations.push(Reservation { frontend, key, class, number, note });
                }
            }
            Order::Withdraw(key) => {
                self.reservations.retain(|known| known.frontend != frontend || known.key != key);
            }
            Order::GiveBack(token) => {
                self.take_back(frontend, token);
            }
        }
    }

    /// A job comes with a token. If that is true the job is the next to run, and an instance is free for it; else it is
    /// one like any other, as when a job without a token has taken the instance meanwhile.
    pub fn redeem(&mut self, frontend: Frontend, token: Token) -> bool {
        let free = self.running + self.promised < self.slots;
        let valid = self.take_back(frontend, token) && free;
        self.promised += usize::from(valid);
        valid
    }

    /// A job that came with a token is not to run after all.
    pub fn let_go(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// A job starts; with a token, if it was redeemed.
    pub fn begin(&mut self, redeemed: bool, now: Duration) {
        if redeemed {
            self.let_go();
        }
        self.running += 1;
        self.call_back(now);
    }

    /// A job ended.
    pub fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// Gives out what is free to those that come before the first job that waits, and says whether that job may run.
    /// `rank` says how reservations and jobs compare: the least comes first.
    pub fn settle<R: Ord>(
        &mut self,
        now: Duration,
        job: Option<R>,
        rank: impl Fn(&Reservation<K>) -> R,
    ) -> bool {
        loop {
            let ranked = self.reservations.iter().enumerate().map(|(at, known)| (rank(known), at));
            let first = ranked.min();
            let Some((_, at)) = first.filter(|(first, _)| job.as_ref().is_none_or(|job| first < job)) else {
                break;
            };
            let Reservation { frontend: holder, note, .. } = self.reservations[at];
            if self.home() == 0 {
                self.call_back(now);
                return false;
            }
            self.reservations.retain(|known| known.frontend != holder);
            let contended = job.is_some() || !self.reservations.is_empty();
            self.give(holder, contended, note, now);
        }
        self.call_back(now);
        // A job that has no token need not wait for those that are only held.
        job.is_some() && self.running + self.promised < self.slots
    }

    /// A frontend's job ended and nobody waits: it may send another one.
    pub fn stick(&mut self, frontend: Frontend, now: Duration) {
        let shared = self.frontends.len() > 1;
        if shared && self.home() > 0 && self.reservations.is_empty() && self.frontends.contains(&frontend) {
            self.give(frontend, false, Note::default(), now);
        }
    }

    /// Makes those tokens void whose time is over. Says when to come again.
    pub fn tick(&mut self, now: Duration) -> Option<Duration> {
        let Settings { young, recall, .. } = self.settings;
        let over = |out: &Out| match (out.recalled, out.lease) {
            (Some(at), _) => Some(at + recall),
            (None, Some(lease)) => Some(out.since + lease + recall),
            (None, None) => None,
        };
        self.out.retain(|out| over(out).is_none_or(|at| at > now));
        let wanted = !self.reservations.is_empty() || self.overdrawn();
        let ripe = |out: &Out| (wanted && out.recalled.is_none()).then_some(out.since + young);
        let times = self.out.iter().flat_map(|out| [over(out), ripe(out).filter(|at| *at > now)]);
        times.flatten().min()
    }

    /// What is to be told to frontends, since this was asked for last.
    pub fn mail(&mut self) -> Vec<(Frontend, Message)> {
        std::mem::take(&mut self.mail)
    }

    /// Whether a reservation waits.
    pub fn is_wanted(&self) -> bool {
        !self.reservations.is_empty()
    }

    /// Whether any frontend takes part.
    pub fn is_used(&self) -> bool {
        !self.frontends.is_empty()
    }

    /// The reservations that wait.
    pub fn reservations(&self) -> &[Reservation<K>] {
        &self.reservations
    }

    /// Whether no token is out and none is wished for.
    pub fn is_all_home(&self) -> bool {
        self.out.is_empty() && self.reservations.is_empty()
    }

    /// Tokens that frontends hold.
    pub fn out(&self) -> usize {
        self.out.len()
    }

    /// Instances that are free and promised to nobody.
    pub fn home(&self) -> usize {
        self.slots.saturating_sub(self.running + self.promised + self.out.len())
    }

    fn overdrawn(&self) -> bool {
        self.running + self.promised + self.out.len() > self.slots
    }

    fn give(&mut self, holder: Frontend, contended: bool, met: Note, now: Duration) {
        self.next = self.next.wrapping_add(1);
        let token = Token(self.next);
        let reserved = self.home() <= self.kept;
        let lease = (self.frontends.len() > 1).then_some(self.settings.lease);
        let sharers = u16::try_from(self.frontends.len()).unwrap_or(u16::MAX);
        self.out.push_back(Out { token, holder, since: now, lease, recalled: None });
        let grant = Grant { token, lease, contended, reserved, sharers, met };
        self.mail.push((holder, Message::Granted(grant)));
    }

    fn take_back(&mut self, holder: Frontend, token: Token) -> bool {
        let known = |out: &Out| out.holder == holder && out.token == token;
        let Some(at) = self.out.iter().position(known) else { return false };
        self.out.remove(at);
        true
    }

    /// Calls back as many tokens as reservations wait for, the oldest first. Who reserves holds none as far as it knows: if one
    /// of its own is out all the same it was lost, so that one is called back as well, after those of others.
    fn call_back(&mut self, now: Duration) {
        if self.out.is_empty() || (self.reservations.is_empty() && !self.overdrawn()) {
            return;
        }
        let excess = (self.running + self.promised + self.out.len()).saturating_sub(self.slots);
        let called = self.out.iter().filter(|out| out.recalled.is_some()).count();
        let mut missing = (self.reservations.len() + excess).saturating_sub(called);
        for own in [false, true] {
            for out in &mut self.out {
                let reserves = self.reservations.iter().any(|known| known.frontend == out.holder);
                let ripe = out.since + self.settings.young <= now;
                if missing > 0 && out.recalled.is_none() && reserves == own && ripe {
                    out.recalled = Some(now);
                    missing -= 1;
                    self.mail.push((out.holder, Message::Recalled(out.token)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Frontend = Frontend(1);
    const TWO: Frontend = Frontend(2);
    const MS: Duration = Duration::from_millis(1);

    /// A desk that two frontends take part in.
    fn desk(slots: usize) -> Desk<&'static str> {
        let mut desk = Desk::new(slots, Settings::default());
        [ONE, TWO].into_iter().for_each(|frontend| desk.join(frontend));
        desk.mail();
        desk
    }

    #[test]
    fn one_that_is_alone_is_told_so_and_gets_no_tokens_until_another_comes() {
        let mut desk: Desk<&'static str> = Desk::new(3, Settings::default());
        desk.join(ONE);
        assert_eq!(desk.mail(), [(ONE, Message::Alone(3))]);
        desk.stick(ONE, MS);
        assert_eq!((desk.mail(), desk.out()), (vec![], 0));
        desk.join(TWO);
        assert_eq!(desk.mail(), [(ONE, Message::Shared)]);
        desk.join(Frontend(3));
        assert_eq!(desk.mail(), []);
        desk.leave(ONE);
        desk.leave(Frontend(3));
        assert_eq!(desk.mail(), [(TWO, Message::Alone(3))]);
        desk.leave(TWO);
        assert_eq!(desk.mail(), []);
    }

    fn reserve(desk: &mut Desk<&'static str>, frontend: Frontend, class: Class, number: u64, now: Duration) {
        desk.told(frontend, Order::Reserve("m", class, Note::default()), number);
        desk.settle(now, None, |known| (known.class, known.number));
    }

    /// The one token that was just given.
    fn granted(desk: &mut Desk<&'static str>, to: Frontend) -> Grant {
        let mail = desk.mail();
        match mail[..] {
            [(frontend, Message::Granted(grant))] if frontend == to => grant,
            _ => panic!("no token for {to:?}: {mail:?}"),
        }
    }

    #[test]
    fn a_token_stays_with_the_frontend_whose_job_ended_unless_another_waits() {
        let mut desk = desk(1);
        desk.begin(false, MS);
        desk.end();
        desk.stick(ONE, MS);
        let grant = granted(&mut desk, ONE);
        assert_eq!((grant.contended, grant.lease, grant.sharers), (false, Some(100 * MS), 2));
        assert!(desk.redeem(ONE, grant.token));
        desk.begin(true, 2 * MS);
        reserve(&mut desk, TWO, Class::Query, 1, 2 * MS);
        assert_eq!(desk.mail(), []);
        desk.end();
        desk.settle(3 * MS, None, |known| (known.class, known.number));
        desk.stick(ONE, 3 * MS);
        assert!(!granted(&mut desk, TWO).contended);
    }

    #[test]
    fn an_idle_workers_token_is_called_back_for_who_waits_and_void_in_time() {
        for answers in [true, false] {
            let mut desk = desk(1);
            desk.stick(ONE, Duration::ZERO);
            let token = granted(&mut desk, ONE).token;
            reserve(&mut desk, TWO, Class::Query, 1, 10 * MS);
            assert_eq!(desk.mail(), [(ONE, Message::Recalled(token))]);
            if answers {
                desk.told(ONE, Order::GiveBack(token), 2);
            } else {
                assert_eq!(desk.tick(10 * MS), Some(15 * MS));
                desk.tick(15 * MS);
            }
            desk.settle(15 * MS, None, |known| (known.class, known.number));
            granted(&mut desk, TWO);
            assert!(!desk.redeem(ONE, token), "it is another's now");
        }
    }

    #[test]
    fn a_token_that_is_hardly_given_is_not_called_back_yet() {
        let mut desk = desk(1);
        desk.stick(ONE, 10 * MS);
        let token = granted(&mut desk, ONE).token;
        reserve(&mut desk, TWO, Class::Query, 1, 10 * MS);
        assert_eq!((desk.mail(), desk.tick(10 * MS)), (vec![], Some(11 * MS)));
        desk.settle(11 * MS, None, |known| (known.class, known.number));
        assert_eq!(desk.mail(), [(ONE, Message::Recalled(token))]);
    }

    #[test]
    fn the_late_come_first_and_a_job_that_waits_has_its_place_among_reservations() {
        let mut desk = desk(1);
        desk.begin(false, MS);
        reserve(&mut desk, ONE, Class::Query, 1, MS);
        reserve(&mut desk, TWO, Class::Late, 3, MS);
        desk.end();
        let rank = |known: &Reservation<&'static str>| (known.class, known.number);
        assert!(!desk.settle(MS, Some((Class::Query, 2)), rank), "two reservations come before the job");
        let grant = granted(&mut desk, TWO);
        assert!(grant.contended);
        assert!(desk.redeem(TWO, grant.token));
        desk.begin(true, MS);
        desk.told(ONE, Order::Withdraw("m"), 4);
        desk.end();
        assert!(desk.settle(2 * MS, Some((Class::Query, 2)), rank));
    }

    #[test]
    fn a_job_without_a_token_starts_at_once_and_the_promise_that_it_breaks_is_taken_back() {
        let mut desk = desk(1);
        desk.stick(ONE, Duration::ZERO);
        let token = granted(&mut desk, ONE).token;
        assert!(desk.settle(10 * MS, Some((Class::Query, 1)), |known| (known.class, known.number)));
        desk.begin(false, 10 * MS);
        assert_eq!(desk.mail(), [(ONE, Message::Recalled(token))]);
        assert!(!desk.redeem(ONE, token), "the instance is taken");
        assert_eq!(desk.out(), 0);
    }

    #[test]
    fn the_last_tokens_are_for_queries_where_instances_are_reserved() {
        let mut desk = desk(3);
        desk.keep(2);
        let mut reserved = || {
            desk.stick(ONE, Duration::ZERO);
            granted(&mut desk, ONE).reserved
        };
        assert_eq!([reserved(), reserved(), reserved()], [false, true, true]);
    }

    #[test]
    fn who_reserves_though_it_holds_the_token_has_lost_it_and_gets_another() {
        let mut desk = desk(1);
        desk.stick(ONE, Duration::ZERO);
        let lost = granted(&mut desk, ONE);
        reserve(&mut desk, ONE, Class::Query, 1, 10 * MS);
        assert_eq!(desk.mail(), [(ONE, Message::Recalled(lost.token))]);
        desk.tick(15 * MS);
        desk.settle(15 * MS, None, |known| (known.class, known.number));
        assert_ne!(granted(&mut desk, ONE).token, lost.token);
    }

    #[test]
    fn what_the_dead_held_and_wished_for_is_gone_and_lost_messages_cost_no_instance() {
        let mut desk = desk(2);
        desk.stick(ONE, Duration::ZERO);
        desk.stick(TWO, Duration::ZERO);
        desk.mail();
        desk.leave(ONE);
        assert_eq!((desk.out(), desk.home()), (1, 1));
        desk.told(ONE, Order::Reserve("m", Class::Query, Note::default()), 1);
        assert!(!desk.is_wanted(), "it is gone");
        // The other's token was lost, or the word that it gives it back.
        assert_eq!(desk.tick(MS), Some(105 * MS));
        desk.tick(105 * MS);
        assert_eq!((desk.out(), desk.home()), (0, 2));
    }

    #[test]
    fn what_is_said_twice_counts_once_and_reservations_are_bounded() {
        let settings = Settings { most_reservations: 2, ..Settings::default() };
        let mut desk = Desk::new(1, settings);
        [ONE, TWO].into_iter().for_each(|frontend| desk.join(frontend));
        desk.begin(false, MS);
        for model in ["a", "a", "b", "c"] {
            desk.told(ONE, Order::Reserve(model, Class::Query, Note::default()), 1);
        }
        let known: Vec<_> = desk.reservations().iter().map(|known| known.key).collect();
        assert_eq!(known, ["a", "b"]);
    }
}
