//! What waits at a queue, in which order it is served, and what of it is promised to frontends.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parm_protocol::fleet::{Caller, Mailbox};
use parm_shares::{Charge, Clock, Due, Share};
use parm_tokens::{Class, Desk, Frontend, Message};

use super::Job;
use crate::host::Loaded;
use crate::metrics::ShareMetrics;
use crate::{Config, Metrics};

pub(super) struct State {
    /// By model.
    lines: BTreeMap<String, Line>,
    clock: Clock,
    /// Of models whose weight is not 1.
    weights: BTreeMap<String, NonZeroU16>,
    /// Jobs that came with a token: a thread is free for each.
    promised: VecDeque<Job>,
    /// Jobs in line.
    pub(super) waiting: usize,
    next: u64,
    /// Threads at work.
    pub(super) busy: usize,
    pub(super) open: bool,
    pub(super) desk: Desk<String>,
    /// The ways to the frontends that take part.
    pub(super) mailboxes: BTreeMap<Frontend, Arc<dyn Mailbox>>,
    pub(super) frontends: u64,
    /// When the tokens are looked at next.
    pub(super) tick: Option<Duration>,
    origin: Instant,
    metrics: Metrics,
}

/// A model's jobs, and its share of the instances' time.
struct Line {
    share: Share,
    /// By priority, then by arrival.
    jobs: BTreeMap<(u8, u64), Job>,
    running: usize,
    weight: f64,
    metrics: ShareMetrics,
}

/// A job that a thread took: what its model was charged for it.
pub(crate) struct Ticket {
    model: Arc<Loaded>,
    charge: Charge,
    caller: Option<Caller>,
    /// Its instance was given to whoever comes next.
    handed_on: bool,
}

/// A message, and the way to its frontend.
pub(super) type Letter = (Arc<dyn Mailbox>, Message, bool);

/// Where something stands in the order of service: the least comes first.
type Rank = (Class, Due, u64);

/// Models without jobs whose service is remembered; more would be the doing of names that come and go.
const LINES_KEPT: usize = 256;

impl State {
    pub(super) fn new(config: &Config, threads: usize, metrics: Metrics) -> Self {
        Self {
            lines: BTreeMap::new(),
            clock: Clock::default(),
            weights: config.weights.clone(),
            promised: VecDeque::new(),
            waiting: 0,
            next: 0,
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

    /// The line of a job's model.
    fn line(&mut self, job: &Job) -> &mut Line {
        let model = &job.model.metadata.name;
        if !self.lines.contains_key(model) {
            let weight = f64::from(self.weights.get(model).map_or(1, |weight| weight.get()));
            let metrics = self.metrics.share(model);
            let line = Line { share: Share::new(weight), jobs: BTreeMap::new(), running: 0, weight, metrics };
            self.lines.insert(model.clone(), line);
        }
        self.lines.get_mut(model).expect("it was just put there")
    }

    pub(super) fn push(&mut self, job: Job) {
        let number = self.number();
        let line = self.line(&job);
        line.metrics.waiting.inc();
        line.jobs.insert((job.priority, number), job);
        self.waiting += 1;
    }

    /// Gives out what is free to those that come before all jobs. Whether the job that comes next may run.
    pub(super) fn arrange(&mut self) -> bool {
        let now = self.now();
        let (lines, clock) = (&self.lines, &self.clock);
        let first = lines.values().filter_map(|line| line.rank(clock)).min();
        let ahead = Share::new(1.0).due(clock);
        self.desk.settle(now, first, |known| {
            (known.class, lines.get(&known.key).map_or(ahead, |line| line.share.due(clock)), known.number)
        })
    }

    /// The job that comes next, if one may run now.
    pub(super) fn pop(&mut self) -> Option<Job> {
        if self.waiting == 0 || !self.arrange() {
            return None;
        }
        let clock = self.clock;
        let ranked = self.lines.values_mut().filter_map(|line| Some((line.rank(&clock)?, line)));
        let (_, line) = ranked.min_by_key(|(rank, _)| *rank)?;
        let (_, job) = line.jobs.pop_first()?;
        line.metrics.waiting.dec();
        self.waiting -= 1;
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
        let model = job.model.clone();
        // One that came with a token was in no line, and is charged all the same.
        let mut clock = self.clock;
        let line = self.line(job);
        line.running += 1;
        let charge = line.share.begin(&mut clock);
        self.clock = clock;
        Ticket { model, charge, caller: job.caller, handed_on: false }
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
        self.count_time(&ticket.model.metadata.name, took.as_secs_f64());
        if let Some(line) = self.lines.get_mut(&ticket.model.metadata.name) {
            line.running -= 1;
            line.share.end(ticket.charge, took);
        }
        if self.lines.len() > LINES_KEPT {
            let clock = self.clock;
            self.lines
                .retain(|_, line| line.running > 0 || !line.jobs.is_empty() || !line.share.is_even(&clock));
        }
    }

    /// Counts the time of a job: as used by its share, and as due to all that wanted some, by weight.
    fn count_time(&self, model: &str, seconds: f64) {
        let wants = |line: &&Line| line.running > 0 || !line.jobs.is_empty();
        let all: f64 = self.lines.values().filter(wants).map(|line| line.weight).sum();
        for line in self.lines.values().filter(wants) {
            line.metrics.entitled.inc_by(seconds * line.weight / all);
        }
        if let Some(line) = self.lines.get(model) {
            line.metrics.used.inc_by(seconds);
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

    pub(super) fn is_idle(&self) -> bool {
        self.busy == 0 && self.waiting == 0 && self.promised.is_empty()
    }

    pub(super) fn clear_useless(&mut self) {
        let now = Instant::now();
        for line in self.lines.values_mut() {
            let useless = line.jobs.extract_if(.., |_, job| job.is_useless(now));
            let dropped = useless.map(|(_, job)| drop_useless(job)).count();
            line.metrics.waiting.sub(dropped as i64);
            self.waiting -= dropped;
        }
    }

    /// In order, up to the first that does not fit: a large job is not overtaken for ever by small ones.
    pub(super) fn extract_mates(&mut self, first: &Job, mut rows: usize) -> Vec<Job> {
        let Some(line) = self.lines.get_mut(&first.model.metadata.name) else { return Vec::new() };
        let mates = line.jobs.iter().filter(|(_, job)| first.can_join(job));
        let fitting = mates.map_while(|(&key, job)| {
            rows = rows.checked_sub(job.rows)?;
            Some(key)
        });
        let keys: Vec<_> = fitting.collect();
        self.waiting -= keys.len();
        line.metrics.waiting.sub(keys.len() as i64);
        keys.into_iter().filter_map(|key| line.jobs.remove(&key)).collect()
    }
}

impl Line {
    fn rank(&self, clock: &Clock) -> Option<Rank> {
        let ((priority, number), _) = self.jobs.first_key_value()?;
        Some((class(*priority), self.share.due(clock), *number))
    }
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

/// Counts it, and tells a client that still waits that its deadline passed.
pub(super) fn drop_useless(job: Job) {
    job.model.statistics.metrics().dropped.inc();
    let waited = job.arrived.elapsed();
    job.answer(Err(parm_protocol::Error::DeadlineExceeded { waited }));
}
