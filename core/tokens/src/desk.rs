//! A worker's side of tokens: which are out, and which frontends have reservations.
//!
//! The desk has no clock, no I/O and no job queue. Its owner passes the time, calls it before a job starts, and defines
//! how jobs and reservations compare.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::{Class, Frontend, Grant, Message, Note, Order, Settings, Token};

/// Tokens and reservations of one worker. `K` is the key that shares use: the model's name.
#[derive(Debug)]
pub struct Desk<K> {
    settings: Settings,
    /// Jobs that the worker runs at a time.
    slots: usize,
    /// Running jobs.
    running: usize,
    /// Jobs with a redeemed token that have not started.
    promised: usize,
    /// Reserved instances that their shares do not use.
    kept: usize,
    /// Connected frontends.
    frontends: BTreeSet<Frontend>,
    reservations: Vec<Reservation<K>>,
    /// Granted tokens, oldest first.
    out: VecDeque<Out>,
    next: u32,
    mail: Vec<(Frontend, Message)>,
}

/// A frontend's request for the next free instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation<K> {
    /// The frontend.
    pub frontend: Frontend,
    /// Key of the job.
    pub key: K,
    /// Urgency.
    pub class: Class,
    /// Order of arrival of its job, at the frontend as far as known: nanoseconds on the clock of the owner's jobs.
    pub number: u64,
    /// The frontend's own number for it.
    pub note: Note,
}

/// A granted token.
#[derive(Clone, Copy, Debug)]
struct Out {
    token: Token,
    holder: Frontend,
    since: Duration,
    lease: Option<Duration>,
    recalled: Option<Duration>,
}

impl<K: Ord + Clone> Desk<K> {
    /// Creates the desk of a worker that runs `slots` jobs at a time.
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

    /// Sets how many reserved instances are unused: the last tokens are then for queries only.
    pub fn keep(&mut self, instances: usize) {
        self.kept = instances;
    }

    /// Adds a frontend.
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

    /// Removes a frontend with its tokens and reservations.
    pub fn leave(&mut self, frontend: Frontend) {
        self.frontends.remove(&frontend);
        self.out.retain(|out| out.holder != frontend);
        self.reservations.retain(|reservation| reservation.frontend != frontend);
        self.say_that_one_is_alone();
    }

    /// Informs the only frontend left, if there is one. Mail to a frontend that has left is dropped by the owner.
    fn say_that_one_is_alone(&mut self) {
        if let (Some(only), 1) = (self.frontends.first(), self.frontends.len()) {
            let slots = u16::try_from(self.slots).unwrap_or(u16::MAX);
            self.mail.push((*only, Message::Alone(slots)));
        }
    }

    /// Handles an order of a frontend; `number` is its order of arrival, in nanoseconds.
    pub fn told(&mut self, frontend: Frontend, order: Order<K>, number: u64) {
        if !self.frontends.contains(&frontend) {
            return; // it has left
        }
        match order {
            Order::Reserve(key, class, note, waited) => {
                let waited = waited.min(self.settings.longest_wait);
                let number = number.saturating_sub(waited.as_nanos() as u64);
                let same = |known: &&mut Reservation<K>| {
                    known.frontend == frontend && known.key == key && known.class == class
                };
                if let Some(known) = self.reservations.iter_mut().find(same) {
                    known.note = note;
                    // Frontends that do not report waits keep their place.
                    known.number = if waited.is_zero() { known.number } else { number };
                } else if self.reservations.len() < self.settings.most_reservations
                    || self.makes_room(frontend)
                {
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

    /// Drops the last reservation of the frontend with the most, for one that has less than its part. Returns whether it
    /// did: a frontend with many models must not keep out the others.
    fn makes_room(&mut self, frontend: Frontend) -> bool {
        let part = (self.settings.most_reservations / self.frontends.len().max(1)).max(1);
        let of = |frontend| self.reservations.iter().filter(|known| known.frontend == frontend).count();
        let most =
            self.frontends.iter().copied().max_by_key(|other| of(*other)).filter(|most| of(*most) > part);
        let last = |most| self.reservations.iter().rposition(|known| known.frontend == most);
        let Some(last) = most.filter(|_| of(frontend) < part).and_then(last) else { return false };
        self.reservations.remove(last);
        true
    }

    /// Redeems the token of a job. Returns true if the token is valid and an instance is free for the job. Otherwise
    /// the job is like any other, as when a job without a token has taken the instance meanwhile.
    pub fn redeem(&mut self, frontend: Frontend, token: Token) -> bool {
        let free = self.running + self.promised < self.slots;
        let valid = self.take_back(frontend, token) && free;
        self.promised += usize::from(valid);
        valid
    }

    /// Cancels a job whose token was redeemed.
    pub fn let_go(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// Starts a job, with or without a redeemed token.
    pub fn begin(&mut self, redeemed: bool, now: Duration) {
        if redeemed {
            self.let_go();
        }
        self.running += 1;
        self.call_back(now);
    }

    /// Ends a job.
    pub fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// Grants free instances to the reservations that come before the first waiting job. Returns whether that job may
    /// run. `rank` orders reservations and jobs; the least comes first.
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

    /// Grants a token to the frontend whose job ended, if no reservation waits.
    pub fn stick(&mut self, frontend: Frontend, now: Duration) {
        let shared = self.frontends.len() > 1;
        if shared && self.home() > 0 && self.reservations.is_empty() && self.frontends.contains(&frontend) {
            self.give(frontend, false, Note::default(), now);
        }
    }

    /// Drops expired tokens. Returns when to call again.
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

    /// Takes the messages to frontends since the last call.
    pub fn mail(&mut self) -> Vec<(Frontend, Message)> {
        std::mem::take(&mut self.mail)
    }

    /// Whether a reservation waits.
    pub fn is_wanted(&self) -> bool {
        !self.reservations.is_empty()
    }

    /// Whether a frontend is connected.
    pub fn is_used(&self) -> bool {
        !self.frontends.is_empty()
    }

    /// Waiting reservations.
    pub fn reservations(&self) -> &[Reservation<K>] {
        &self.reservations
    }

    /// Whether no token is out and no reservation waits.
    pub fn is_all_home(&self) -> bool {
        self.out.is_empty() && self.reservations.is_empty()
    }

    /// Number of tokens that frontends hold.
    pub fn out(&self) -> usize {
        self.out.len()
    }

    /// Free instances without a promise or a token.
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

    /// Recalls as many tokens as reservations wait for, oldest first. A frontend that reserves should hold no token, so
    /// a token of its own was lost in transit: it is recalled too, after those of other frontends.
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

    /// A desk with two frontends.
    fn desk(slots: usize) -> Desk<&'static str> {
        let mut desk = Desk::new(slots, Settings::default());
        [ONE, TWO].into_iter().for_each(|frontend| desk.join(frontend));
        desk.mail();
        desk
    }

    #[test]
    fn single_frontend_gets_no_tokens_until_another_joins() {
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
        desk.told(frontend, Order::Reserve("m", class, Note::default(), Duration::ZERO), number);
        desk.settle(now, None, |known| (known.class, known.number));
    }

    /// The one token that was just granted.
    fn granted(desk: &mut Desk<&'static str>, to: Frontend) -> Grant {
        let mail = desk.mail();
        match mail[..] {
            [(frontend, Message::Granted(grant))] if frontend == to => grant,
            _ => panic!("no token for {to:?}: {mail:?}"),
        }
    }

    #[test]
    fn token_stays_with_frontend_unless_another_waits() {
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
    fn idle_token_is_recalled_for_reservation_and_expires() {
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
            assert!(!desk.redeem(ONE, token), "the token was granted to another frontend");
        }
    }

    #[test]
    fn token_is_not_recalled_before_minimum_age() {
        let mut desk = desk(1);
        desk.stick(ONE, 10 * MS);
        let token = granted(&mut desk, ONE).token;
        reserve(&mut desk, TWO, Class::Query, 1, 10 * MS);
        assert_eq!((desk.mail(), desk.tick(10 * MS)), (vec![], Some(11 * MS)));
        desk.settle(11 * MS, None, |known| (known.class, known.number));
        assert_eq!(desk.mail(), [(ONE, Message::Recalled(token))]);
    }

    #[test]
    fn late_reservation_precedes_waiting_job_and_queries() {
        let mut desk = desk(1);
        desk.begin(false, MS);
        reserve(&mut desk, ONE, Class::Query, 1, MS);
        reserve(&mut desk, TWO, Class::Late, 3, MS);
        desk.end();
        let rank = |known: &Reservation<&'static str>| (known.class, known.number);
        assert!(!desk.settle(MS, Some((Class::Query, 2)), rank), "two reservations precede the job");
        let grant = granted(&mut desk, TWO);
        assert!(grant.contended);
        assert!(desk.redeem(TWO, grant.token));
        desk.begin(true, MS);
        desk.told(ONE, Order::Withdraw("m"), 4);
        desk.end();
        assert!(desk.settle(2 * MS, Some((Class::Query, 2)), rank));
    }

    #[test]
    fn job_without_token_starts_and_recalls_promised_token() {
        let mut desk = desk(1);
        desk.stick(ONE, Duration::ZERO);
        let token = granted(&mut desk, ONE).token;
        assert!(desk.settle(10 * MS, Some((Class::Query, 1)), |known| (known.class, known.number)));
        desk.begin(false, 10 * MS);
        assert_eq!(desk.mail(), [(ONE, Message::Recalled(token))]);
        assert!(!desk.redeem(ONE, token), "the instance is in use");
        assert_eq!(desk.out(), 0);
    }

    #[test]
    fn last_tokens_are_for_queries_of_reserved_instances() {
        let mut desk = desk(3);
        desk.keep(2);
        let mut reserved = || {
            desk.stick(ONE, Duration::ZERO);
            granted(&mut desk, ONE).reserved
        };
        assert_eq!([reserved(), reserved(), reserved()], [false, true, true]);
    }

    #[test]
    fn reserving_token_holder_gets_a_new_token() {
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
    fn leaving_frontend_and_lost_messages_free_instances() {
        let mut desk = desk(2);
        desk.stick(ONE, Duration::ZERO);
        desk.stick(TWO, Duration::ZERO);
        desk.mail();
        desk.leave(ONE);
        assert_eq!((desk.out(), desk.home()), (1, 1));
        desk.told(ONE, Order::Reserve("m", Class::Query, Note::default(), Duration::ZERO), 1);
        assert!(!desk.is_wanted(), "the frontend has left");
        // Either the other frontend's token or its return was lost.
        assert_eq!(desk.tick(MS), Some(105 * MS));
        desk.tick(105 * MS);
        assert_eq!((desk.out(), desk.home()), (0, 2));
    }

    #[test]
    fn duplicate_orders_count_once_and_are_bounded() {
        let settings = Settings { most_reservations: 2, ..Settings::default() };
        let mut desk = Desk::new(1, settings);
        [ONE, TWO].into_iter().for_each(|frontend| desk.join(frontend));
        desk.begin(false, MS);
        for model in ["a", "a", "b", "c"] {
            desk.told(ONE, Order::Reserve(model, Class::Query, Note::default(), Duration::ZERO), 1);
        }
        let known: Vec<_> = desk.reservations().iter().map(|known| known.key).collect();
        assert_eq!(known, ["a", "b"]);
    }
}
