//! What waits at a queue, in which order it is served, and what of it is promised to frontends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use parm_protocol::fleet::{Caller, Mailbox, Wish};
use parm_shares::{Book, Charge, Due, Table, Terms, Work};
use parm_tokens::{Class, Desk, Frontend, Message, Order, Reservation};
use tokio::time::Instant;

use super::Job;
use super::line::Line;
use crate::host::Loaded;
use crate::payer::Payer;
use crate::{Config, Metrics};

pub(super) struct State {
    /// By share.
    lines: BTreeMap<Payer, Line>,
    book: Book<Payer, String>,
    /// The shares that are set up.
    shares: Table,
    /// Of models whose weight is not 1.
    weights: BTreeMap<String, NonZeroU16>,
    /// Jobs that came with a token: a thread is free for each.
    promised: VecDeque<Job>,
    /// Jobs in line.
    pub(super) waiting: usize,
    next: u64,
    /// Instances: so many jobs run at a time.
    threads: usize,
    /// Those at work, be it on a thread of their own or where the request was read.
    pub(super) busy: usize,
    pub(super) open: bool,
    pub(super) desk: Desk<Wanted>,
    /// The ways to the frontends that take part.
    pub(super) mailboxes: BTreeMap<Frontend, Arc<dyn Mailbox>>,
    pub(super) frontends: u64,
    /// When the tokens are looked at next.
    pub(super) tick: Option<Duration>,
    origin: Instant,
    metrics: Metrics,
}

/// What a frontend has reserved for: a job of a model, and who pays for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wanted {
    payer: Payer,
    model: String,
}

/// A job that a thread took: what its share was charged for it.
pub(crate) struct Ticket {
    model: Arc<Loaded>,
    payer: Payer,
    charge: Charge,
    caller: Option<Caller>,
    /// Its instance was given to whoever comes next.
    handed_on: bool,
}

/// A message, and the way to its frontend.
pub(super) type Letter = (Arc<dyn Mailbox>, Message, bool);

/// Where something stands in the order of service: the least comes first.
type Rank = (bool, Class, Due, u64);

/// Shares without jobs whose service is remembered; more would be the doing of models that come and go.
const LINES_KEPT: usize = 256;

impl State {
    pub(super) fn new(config: &Config, threads: usize, metrics: Metrics) -> Self {
        let (shares, mut book) = (Table::new(&config.shares), Book::default());
        let mut lines = BTreeMap::new();
        for (_, name, settings) in shares.iter() {
            let payer = Payer::Share(name.clone());
            book.promise(&payer, settings.terms());
            lines.insert(payer.clone(), Line::new(metrics.share(&payer)));
        }
        Self {
            lines,
            book,
            shares,
            weights: config.weights.clone(),
            promised: VecDeque::new(),
            waiting: 0,
            next: 0,
            threads,
            busy: 0,
            open: true,
            desk: Desk::new(threads, config.tokens.settings()),
            mailboxes: BTreeMap::new(),
            frontends: 0,
            tick: None,
            origin: Instant::now(),
            metrics,
        }
    }

    /// Time as the desk counts it.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// When that is by the clock.
    pub(super) fn instant(&self, at: Duration) -> Instant {
        self.origin + at
    }

    /// The next number in the order of arrival.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Puts a job where its token says, if it has one. Gives back one that is like any other, and still to be put in line.
    pub(super) fn redeem(&mut self, job: Job) -> Option<Job> {
        let token = job.caller.and_then(|caller| Some((caller.frontend, caller.token?)));
        if !token.is_some_and(|(frontend, token)| self.desk.redeem(frontend, token)) {
            return Some(job);
        }
        // A spare job never runs before what others wait for.
        if class(job.priority) == Class::Spare && self.desk.is_wanted() {
            self.desk.let_go();
            return Some(job);
        }
        self.promised.push_back(job);
        None
    }

    /// The line of a share; set up where there is none yet.
    fn line(&mut self, payer: &Payer) -> &mut Line {
        if !self.lines.contains_key(payer) {
            if let Payer::Model(model) = payer
                && !self.book.knows(payer)
            {
                let weight = self.weights.get(&**model).map_or(1, |weight| weight.get());
                self.book.promise(payer, Terms { weight: weight.into(), reserved: 0 });
            }
            self.lines.insert(payer.clone(), Line::new(self.metrics.share(payer)));
        }
        self.lines.get_mut(payer).expect("it was just put there")
    }

    pub(super) fn push(&mut self, job: Job) {
        let number = self.number();
        self.book.wait(&job.payer);
        self.line(&job.payer).push(number, job);
        self.waiting += 1;
    }

    /// Whether a job's share has its part of a full queue: who has less is let in, so that no flood shuts others out.
    pub(super) fn has_its_part(&self, job: &Job, capacity: usize) -> bool {
        let own = self.lines.get(&job.payer).map_or(0, Line::len);
        let others = self.lines.iter().filter(|(payer, line)| **payer != job.payer && line.len() > 0).count();
        own * (others + 1) >= capacity
    }

    /// A frontend says something.
    pub(super) fn told(&mut self, frontend: Frontend, order: Order<Wish>) {
        let number = self.number();
        let order = match order {
            Order::Reserve(wish, class, note) => Order::Reserve(self.wanted(wish), class, note),
            Order::Withdraw(wish) => Order::Withdraw(self.wanted(wish)),
            Order::GiveBack(token) => Order::GiveBack(token),
        };
        self.desk.told(frontend, order, number);
    }

    /// Who would pay for a job: nobody is set up for it.
    fn wanted(&self, wish: Wish) -> Wanted {
        let Wish { model, share } = wish;
        let named = share.and_then(|share| Payer::named(&share, &self.shares, |_| true));
        Wanted { payer: named.unwrap_or_else(|| Payer::of_model(&model, &self.shares)), model }
    }

    /// Gives out what is free to those that come before all jobs. Whether the job that comes next may run.
    pub(super) fn arrange(&mut self) -> bool {
        let now = self.now();
        self.book.wish(self.desk.reservations().iter().map(|known| &known.key.payer));
        self.desk.keep(self.book.unused() as usize);
        let first = self.first().map(|(rank, _)| rank);
        let book = &self.book;
        let reserved =
            |known: &Reservation<Wanted>| rank(book, &known.key.payer, (known.class, known.number));
        self.desk.settle(now, first, reserved)
    }

    /// The line that comes next, and where it stands.
    fn first(&self) -> Option<(Rank, &Payer)> {
        let ranked = self.lines.iter().filter_map(|(payer, line)| {
            let (priority, number) = line.first()?;
            Some((rank(&self.book, payer, (class(priority), number)), payer))
        });
        ranked.min_by_key(|(rank, _)| *rank)
    }

    /// The job that comes next, if one may run now.
    pub(super) fn pop(&mut self) -> Option<Job> {
        if self.waiting == 0 || !self.arrange() {
            return None;
        }
        let payer = self.first()?.1.clone();
        let job = self.lines.get_mut(&payer)?.pop()?;
        self.waiting -= 1;
        // What nobody waits for any more is not begun.
        self.book.leave(&payer, 1);
        Some(job)
    }

    /// A job that came with a token.
    pub(super) fn pop_promised(&mut self) -> Option<Job> {
        while let Some(job) = self.promised.pop_front() {
            if !job.is_useless(Instant::now()) {
                return Some(job);
            }
            self.desk.let_go();
            drop_useless(job);
        }
        None
    }

    pub(super) fn begin(&mut self, job: &Job, redeemed: bool) -> Ticket {
        self.busy += 1;
        let now = self.now();
        self.desk.begin(redeemed, now);
        let (model, payer) = (job.model.clone(), job.payer.clone());
        // One that came with a token was in no line, and is charged all the same.
        self.line(&payer);
        let charge = self.book.begin(&payer, &model.metadata.name, work_of(class(job.priority)));
        Ticket { model, payer, charge, caller: job.caller, handed_on: false }
    }

    /// A thread's job has ended: its instance is free for whoever comes next, first of all who waits.
    pub(super) fn hand_on(&mut self, ticket: &mut Ticket) {
        if std::mem::replace(&mut ticket.handed_on, true) {
            return;
        }
        self.desk.end();
        self.arrange();
        if self.waiting == 0
            && let Some(caller) = ticket.caller
        {
            let now = self.now();
            self.desk.stick(caller.frontend, now);
        }
    }

    pub(super) fn end(&mut self, mut ticket: Ticket, took: Duration) {
        self.hand_on(&mut ticket);
        self.busy -= 1;
        self.book.end(&ticket.payer, &ticket.model.metadata.name, ticket.charge, took);
        for (payer, account) in self.book.accounts() {
            if let Some(line) = self.lines.get_mut(payer) {
                line.count(account);
            }
        }
        if self.lines.len() > LINES_KEPT {
            self.book.forget(|payer| matches!(payer, Payer::Model(_)));
            self.lines.retain(|payer, line| line.len() > 0 || self.book.knows(payer));
            let models: BTreeSet<&str> = self.lines.keys().map(|payer| payer.labels()[1]).collect();
            self.book.forget_models(|model| !models.contains(&**model));
        }
    }

    /// What is to be told to frontends. What goes to the one whose job just ended may go with the answer.
    pub(super) fn letters(&mut self, answering: Option<Frontend>) -> Vec<Letter> {
        let sharing = &self.metrics.sharing;
        sharing.frontends.set(self.mailboxes.len() as i64);
        sharing.tokens.set(self.desk.out() as i64);
        sharing.reservations.set(self.desk.reservations().len() as i64);
        let mail = self.desk.mail();
        let letters = mail.into_iter().filter_map(|(frontend, message)| {
            let at_once = answering != Some(frontend);
            Some((self.mailboxes.get(&frontend)?.clone(), message, at_once))
        });
        letters.collect()
    }

    /// Whether as many jobs run as may.
    pub(super) fn is_full(&self) -> bool {
        self.busy >= self.threads
    }

    /// Whether a job that comes now is the next to run, and nobody has been promised anything.
    pub(super) fn may_begin_at_once(&self) -> bool {
        self.open
            && self.waiting == 0
            && !self.is_full()
            && self.promised.is_empty()
            && self.desk.is_all_home()
    }

    /// Whether a job may be there for an instance.
    pub(super) fn has_more(&self) -> bool {
        self.waiting > 0 || !self.promised.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.busy == 0 && self.waiting == 0 && self.promised.is_empty()
    }

    pub(super) fn clear_useless(&mut self) {
        let now = Instant::now();
        for (payer, line) in &mut self.lines {
            let dropped = line.clear(|job| job.is_useless(now), drop_useless);
            self.waiting -= dropped;
            self.book.leave(payer, dropped as u32);
        }
    }

    /// In order, up to the first that does not fit: a large job is not overtaken for ever by small ones.
    pub(super) fn extract_mates(&mut self, first: &Job, rows: usize) -> Vec<Job> {
        let Some(line) = self.lines.get_mut(&first.payer) else { return Vec::new() };
        let mates = line.mates(first, rows);
        self.waiting -= mates.len();
        self.book.leave(&first.payer, mates.len() as u32);
        mates
    }
}

/// Where something of this class and number stands.
fn rank(book: &Book<Payer, String>, payer: &Payer, (class, number): (Class, u64)) -> Rank {
    let turn = book.turn(payer, work_of(class));
    (turn.waits_its_turn, class, turn.due, number)
}

impl Ticket {
    /// The frontend whose job it is, if it takes part.
    pub(super) fn frontend(&self) -> Option<Frontend> {
        self.caller.map(|caller| caller.frontend)
    }
}

/// What goes first whatever the shares are: what is late; and last: spare work, of which nobody is sure that it will be
/// needed.
fn class(priority: u8) -> Class {
    match priority {
        1 => Class::Late,
        2..=254 => Class::Query,
        _ => Class::Spare,
    }
}

/// What a job of this class is to its share. A retry counts as what helps: its query has had its turn.
fn work_of(class: Class) -> Work {
    if class == Class::Query { Work::Query } else { Work::Redundancy }
}

/// Counts it, and tells a client that still waits that its deadline passed.
pub(super) fn drop_useless(job: Job) {
    job.model.statistics.metrics().dropped.inc();
    let waited = job.arrived.elapsed();
    job.answer(Err(parm_protocol::Error::DeadlineExceeded { waited }));
}
