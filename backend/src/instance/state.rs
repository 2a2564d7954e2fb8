//! The state of a queue: waiting jobs, their order, and grants of frontends.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use parm_grants::{Granter, Told};
use parm_protocol::fleet::{Frontend, Mailbox};
use parm_shares::{Book, Charge, Due, Table, Terms, Work};
use tokio::time::Instant;

use super::Job;
use super::line::{Line, Place};
use crate::host::Loaded;
use crate::payer::Payer;
use crate::{Config, Metrics};

pub(super) struct State {
    /// Lines by share.
    lines: BTreeMap<Payer, Line>,
    book: Book<Payer, String>,
    /// Weights of models, if not 1.
    weights: BTreeMap<String, NonZeroU16>,
    /// Number of waiting jobs.
    pub(super) waiting: usize,
    /// Jobs so far.
    arrived: u64,
    /// Instances: the number of jobs that run at a time.
    threads: usize,
    /// Busy instances, on their own thread or on a reading thread.
    pub(super) busy: usize,
    pub(super) open: bool,
    pub(super) granter: Granter<Frontend>,
    /// The mailboxes of the frontends that take part.
    pub(super) mailboxes: BTreeMap<Frontend, Arc<dyn Mailbox>>,
    pub(super) frontends: u64,
    /// When the granter must look after old grants.
    pub(super) look: Option<Duration>,
    origin: Instant,
    metrics: Metrics,
}

/// A job that a thread took, with the charge of its share.
pub(crate) struct Ticket {
    model: Arc<Loaded>,
    payer: Payer,
    charge: Charge,
    frontend: Option<Frontend>,
    /// Its instance was given to the next job already.
    handed_on: bool,
}

/// A message and the mailbox of its frontend.
pub(super) type Letter = (Arc<dyn Mailbox>, Told, bool);

/// How urgent a job is: late queries precede all others, and spare work, which may turn out useless, comes last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Late,
    Query,
    Spare,
}

/// The position in the order of service: the smallest comes first. Jobs with a grant precede all others.
type Rank = (bool, bool, Class, Due, u64);

/// Number of shares without jobs whose service is remembered: models may come and go.
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
            weights: config.weights.clone(),
            waiting: 0,
            arrived: 0,
            threads,
            busy: 0,
            open: true,
            granter: Granter::new(u16::try_from(threads).unwrap_or(u16::MAX)),
            mailboxes: BTreeMap::new(),
            frontends: 0,
            look: None,
            origin: Instant::now(),
            metrics,
        }
    }

    /// Time since the start of the queue.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The time of that instant.
    pub(super) fn instant(&self, at: Duration) -> Instant {
        self.origin + at
    }

    /// Whether a job that comes has a grant, which it uses.
    pub(super) fn is_granted(&mut self, job: &Job) -> bool {
        job.frontend.is_some_and(|frontend| self.granter.comes(frontend))
    }

    /// The line of a share; created if it does not exist.
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
        self.lines.get_mut(payer).expect("the line was just inserted")
    }

    pub(super) fn push(&mut self, job: Job, granted: bool) {
        self.arrived += 1;
        let place = Place { needs_grant: !granted, priority: job.priority, number: self.arrived };
        self.book.wait(&job.payer);
        self.line(&job.payer).push(place, job);
        self.waiting += 1;
    }

    /// Whether a job's share uses its part of a full queue. Shares below their part are admitted, so that a flood does
    /// not shut others out.
    pub(super) fn has_its_part(&self, job: &Job, capacity: usize) -> bool {
        let own = self.lines.get(&job.payer).map_or(0, Line::len);
        let others = self.lines.iter().filter(|(payer, line)| **payer != job.payer && line.len() > 0).count();
        own * (others + 1) >= capacity
    }

    /// The next line, and its rank.
    fn first(&self) -> Option<(Rank, &Payer)> {
        let ranked = self.lines.iter().filter_map(|(payer, line)| {
            let Place { needs_grant, priority, number } = line.first()?;
            let class = class(priority);
            let turn = self.book.turn(payer, work_of(class));
            Some(((needs_grant, turn.waits_its_turn, class, turn.due, number), payer))
        });
        ranked.min_by_key(|(rank, _)| *rank)
    }

    /// The next job that is still wanted, and whether it has a grant.
    pub(super) fn pop(&mut self) -> Option<(Job, bool)> {
        loop {
            let payer = self.first()?.1.clone();
            let (place, job) = self.lines.get_mut(&payer)?.pop()?;
            self.waiting -= 1;
            // Removes the job from its share's account: a cancelled one does not start.
            self.book.leave(&payer, 1);
            if !job.is_useless(Instant::now()) {
                return Some((job, !place.needs_grant));
            }
            self.drop_useless(place, job);
        }
    }

    /// Counts a dropped job, and reports the expired deadline to a client that still waits. Its grant goes to the next.
    fn drop_useless(&mut self, place: Place, job: Job) {
        if !place.needs_grant {
            self.granter.end(self.origin.elapsed(), None);
        }
        job.model.statistics.metrics().dropped.inc();
        let waited = job.arrived.elapsed();
        job.answer(Err(parm_protocol::Error::DeadlineExceeded { waited }));
    }

    pub(super) fn begin(&mut self, job: &Job, granted: bool) -> Ticket {
        self.busy += 1;
        if !granted {
            self.granter.begin();
        }
        let (model, payer) = (job.model.clone(), job.payer.clone());
        // A job that begins at once was in no line, and is charged like others.
        self.line(&payer);
        let charge = self.book.begin(&payer, &model.metadata.name, work_of(class(job.priority)));
        Ticket { model, payer, charge, frontend: job.frontend, handed_on: false }
    }

    /// A thread's job has ended: its instance is free for the next. While jobs wait here, its grant does not stay with its frontend.
    pub(super) fn hand_on(&mut self, ticket: &mut Ticket) {
        if !std::mem::replace(&mut ticket.handed_on, true) {
            let now = self.now();
            self.granter.end(now, ticket.frontend.filter(|_| self.waiting == 0));
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

    /// The messages for frontends. That to the frontend of the job that just ended may be sent with the answer.
    pub(super) fn letters(&mut self, answering: Option<Frontend>) -> Vec<Letter> {
        let sharing = &self.metrics.sharing;
        sharing.frontends.set(self.mailboxes.len() as i64);
        sharing.grants.set(self.granter.unused() as i64);
        sharing.asking.set(self.granter.asking() as i64);
        let letters = self.granter.told().filter_map(|(frontend, told)| {
            let at_once = answering != Some(frontend);
            Some((self.mailboxes.get(&frontend)?.clone(), told, at_once))
        });
        letters.collect()
    }

    /// Whether all instances are busy.
    pub(super) fn is_full(&self) -> bool {
        self.busy >= self.threads
    }

    /// Whether a new job is the next to run.
    pub(super) fn may_begin_at_once(&self) -> bool {
        self.open && self.waiting == 0 && !self.is_full()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.busy == 0 && self.waiting == 0
    }

    pub(super) fn clear_useless(&mut self) {
        let now = Instant::now();
        let mut useless = Vec::new();
        for (payer, line) in &mut self.lines {
            let dropped = line.clear(|job| job.is_useless(now));
            self.waiting -= dropped.len();
            self.book.leave(payer, dropped.len() as u32);
            useless.extend(dropped);
        }
        useless.into_iter().for_each(|(place, job)| self.drop_useless(place, job));
    }

    /// Jobs in order, up to the first that does not fit, so that small jobs do not overtake a large one forever.
    pub(super) fn extract_mates(&mut self, first: &Job, rows: usize) -> Vec<Job> {
        let Some(line) = self.lines.get_mut(&first.payer) else { return Vec::new() };
        let mates = line.mates(first, rows);
        self.waiting -= mates.len();
        self.book.leave(&first.payer, mates.len() as u32);
        mates
    }
}

impl Ticket {
    /// The frontend of the job, if it takes part.
    pub(super) fn frontend(&self) -> Option<Frontend> {
        self.frontend
    }
}

/// The class of a priority.
fn class(priority: u8) -> Class {
    match priority {
        1 => Class::Late,
        2..=254 => Class::Query,
        _ => Class::Spare,
    }
}

/// The kind of a class in its share's account. A retry counts as redundancy: its query has had its turn.
fn work_of(class: Class) -> Work {
    if class == Class::Query { Work::Query } else { Work::Redundancy }
}
