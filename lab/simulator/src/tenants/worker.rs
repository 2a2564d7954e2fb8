//! An instance that several frontends share: its queue, in the order in which a worker serves it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parm_dispatch::{Class, JobSpec, Order, Payer, PoolId, ShareId, Terms, Wanted};
use parm_shares::{Book, Charge, Due, Work};
use parm_tokens::{Arrivals, Desk, Frontend, Message, Settings};
use parm_workload::clock::Moment;

/// A job of a frontend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) front: usize,
    pub(super) spec: JobSpec,
    pub(super) takes: Duration,
}

/// A job that ended.
pub(super) struct Finished {
    pub(super) job: Job,
    pub(super) took: Duration,
}

pub(super) struct Worker {
    pub(super) desk: Desk<Wanted>,
    book: Book<Payer, PoolId>,
    waiting: BTreeMap<u64, Job>,
    promised: VecDeque<Job>,
    running: Option<(Job, Charge, Moment)>,
    arrivals: Arrivals,
    tick: Option<Moment>,
}

type Rank = (bool, Class, Due, u64);

impl Worker {
    pub(super) fn new(shares: &BTreeMap<ShareId, Terms>) -> Self {
        let mut book = Book::default();
        shares.iter().for_each(|(share, terms)| book.promise(&Payer::Share(*share), *terms));
        Self {
            desk: Desk::new(1, Settings::default()),
            book,
            waiting: BTreeMap::new(),
            promised: VecDeque::new(),
            running: None,
            arrivals: Arrivals::default(),
            tick: None,
        }
    }

    /// Accepts a job.
    pub(super) fn give(&mut self, job: Job, now: Moment) {
        let redeemed =
            job.spec.token.is_some_and(|token| self.desk.redeem(Frontend(job.front as u64), token));
        if redeemed {
            self.promised.push_back(job);
            return;
        }
        self.book.wait(&job.spec.payer);
        self.waiting.insert(self.arrivals.number(age(now)), job);
    }

    /// Handles a frontend's order.
    pub(super) fn told(&mut self, frontend: Frontend, order: Order<Wanted>, now: Moment) {
        let number = self.arrivals.number(age(now));
        self.desk.told(frontend, order, number);
    }

    /// Handles the scheduled check of its tokens.
    pub(super) fn ticked(&mut self) {
        self.tick = None;
    }

    /// Ends the running job.
    pub(super) fn end(&mut self, now: Moment) -> Option<Finished> {
        let (job, charge, since) = self.running.take()?;
        let took = Duration::from_nanos(now.nanos_since(since));
        self.book.end(&job.spec.payer, &job.spec.pool, charge, took);
        self.desk.end();
        Some(Finished { job, took })
    }

    /// Starts the next job of an idle instance and returns its end. `answering` just had a job here.
    pub(super) fn proceed(&mut self, now: Moment, answering: Option<Frontend>) -> Option<Moment> {
        let at = age(now);
        self.desk.tick(at);
        self.book.wish(self.desk.reservations().iter().map(|known| &known.key.payer));
        self.desk.keep(self.book.unused() as usize);
        let ranked = self
            .waiting
            .iter()
            .map(|(number, job)| (rank(&self.book, job.spec.payer, (job.spec.class, *number)), *number));
        let first = ranked.min();
        let book = &self.book;
        let may = self.desk.settle(at, first.map(|(rank, _)| rank), |known| {
            rank(book, known.key.payer, (known.class, known.number))
        });
        if self.running.is_some() {
            return None;
        }
        let promised = self.promised.pop_front();
        let redeemed = promised.is_some();
        let next = first.filter(|_| may).and_then(|(_, number)| self.waiting.get(&number).map(|_| number));
        let job = promised.or_else(|| self.take(next?));
        let Some(job) = job else {
            answering.into_iter().for_each(|frontend| self.desk.stick(frontend, at));
            return None;
        };
        self.desk.begin(redeemed, at);
        let charge = self.book.begin(&job.spec.payer, &job.spec.pool, work(job.spec.class));
        self.running = Some((job, charge, now));
        Some(now + job.takes)
    }

    fn take(&mut self, number: u64) -> Option<Job> {
        let job = self.waiting.remove(&number)?;
        self.book.leave(&job.spec.payer, 1);
        Some(job)
    }

    /// Returns its messages, and the time of its next check of tokens if that has changed.
    pub(super) fn mail(&mut self, now: Moment) -> (Vec<(Frontend, Message)>, Option<Moment>) {
        let mail = self.desk.mail();
        let next = self.desk.tick(age(now));
        let next = next.map(|at| Moment::from_nanos(at.as_nanos() as u64));
        let news = next.filter(|at| self.tick.is_none_or(|noted| *at < noted));
        self.tick = news.or(self.tick);
        (mail, news)
    }
}

fn age(now: Moment) -> Duration {
    Duration::from_nanos(now.as_nanos())
}

fn rank(book: &Book<Payer, PoolId>, payer: Payer, (class, number): (Class, u64)) -> Rank {
    let turn = book.turn(&payer, work(class));
    (turn.waits_its_turn, class, turn.due, number)
}

fn work(class: Class) -> Work {
    if class == Class::Query { Work::Query } else { Work::Redundancy }
}
