//! The bounded queue between requests and instances.
//!
//! The order of service is: shares with reserved instances that they do not use, late queries (priority 1), other work
//! by weighted fair queueing over shares, and last spare work (priority 255). Weighted fair queueing serves the share
//! with the least instance time for its weight, so that a flood of one share does not delay others. In a share, higher
//! priority goes first, then age. A share is a configured one or a model's own. Cancelled jobs never reach a thread,
//! and a full queue drops them before it rejects a job.
//!
//! Frontends that share the instances ask for a thread and send a job when it is granted (see the crate `grants`). Such a job
//! comes before those that wait here. A job without a grant never waits for a granted one that is still under way, so that no
//! thread idles.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use parm_grants::{Granter, Order, Told};
use parm_protocol::Error;
use parm_protocol::fleet::{Frontend, Giver, Mailbox, OWN_SHARE};
use parm_shares::{Book, Charge, Due, Table, Terms, Work};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Job;
use crate::host::Loaded;
use crate::metrics::ShareMetrics;
use crate::{Config, Metrics};

/// The retry delay of a rejected client: about the time in which a short queue moves.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Number of shares without jobs whose service is remembered: models may come and go.
const LINES_KEPT: usize = 256;

pub(crate) struct Queue {
    state: Mutex<State>,
    /// Signalled when work arrives.
    arrived: Condvar,
    idle: Notify,
    /// Signalled when a thread ends its job.
    done: Notify,
    /// Signalled when old grants need a look earlier than announced.
    sooner: Arc<Notify>,
    capacity: usize,
}

struct State {
    /// The waiting jobs by share.
    lines: BTreeMap<Payer, Line>,
    book: Book<Payer, String>,
    /// Number of waiting jobs.
    waiting: usize,
    /// Jobs so far.
    arrived: u64,
    /// Instances: the number of jobs that run at a time.
    threads: usize,
    /// Busy instances, on their own thread or on a reading thread.
    busy: usize,
    open: bool,
    granter: Granter<Frontend>,
    /// The mailboxes of the frontends that take part.
    mailboxes: BTreeMap<Frontend, Arc<dyn Mailbox>>,
    frontends: u64,
    /// When the granter must look after old grants.
    look: Option<Duration>,
    origin: Instant,
    metrics: Metrics,
}

/// The waiting jobs of one share, and its metrics.
struct Line {
    jobs: BTreeMap<Place, Job>,
    metrics: ShareMetrics,
    /// Seconds that were counted as used, and as entitled.
    counted: (f64, f64),
}

/// The place of a job in its line: jobs with a grant come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    needs_grant: bool,
    priority: u8,
    /// Its number among all jobs.
    number: u64,
}

/// A job that a thread took, with the charge of its share.
pub(crate) struct Ticket {
    model: Arc<Loaded>,
    payer: Payer,
    charge: Charge,
    /// The frontend of the job, if it takes part.
    frontend: Option<Frontend>,
    /// Its instance was given to the next job already.
    handed_on: bool,
}

/// A message and the mailbox of its frontend, and whether it travels at once.
type Letter = (Arc<dyn Mailbox>, Told, bool);

/// How urgent a job is: late queries precede all others, and spare work, which may turn out useless, comes last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Late,
    Query,
    Spare,
}

/// The position in the order of service: the smallest comes first. Jobs with a grant precede all others.
type Rank = (bool, bool, Class, Due, u64);

impl Class {
    fn of(priority: u8) -> Self {
        match priority {
            1 => Class::Late,
            2..=254 => Class::Query,
            _ => Class::Spare,
        }
    }

    /// The kind in the account of a share. A retry counts as redundancy: its query has had its turn.
    fn work(self) -> Work {
        if self == Class::Query { Work::Query } else { Work::Redundancy }
    }
}

impl Line {
    fn new(metrics: ShareMetrics) -> Self {
        Self { jobs: BTreeMap::new(), metrics, counted: (0.0, 0.0) }
    }

    fn show(&self) {
        self.metrics.waiting.set(self.jobs.len() as i64);
    }
}

impl Queue {
    /// The queue of this number of threads.
    pub(crate) fn new(config: &Config, threads: usize, metrics: &Metrics) -> Self {
        let (shares, mut book) = (Table::new(&config.shares), Book::default());
        let mut lines = BTreeMap::new();
        for (_, name, settings) in shares.iter() {
            let payer = Payer::Share(name.clone());
            book.promise(&payer, settings.terms());
            lines.insert(payer.clone(), Line::new(metrics.share(&payer)));
        }
        let state = State {
            lines,
            book,
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
            metrics: metrics.clone(),
        };
        Self {
            state: Mutex::new(state),
            arrived: Condvar::new(),
            idle: Notify::new(),
            done: Notify::new(),
            sooner: Arc::default(),
            capacity: config.queue.get(),
        }
    }

    /// Queues a job, or rejects it.
    pub(crate) fn push(&self, job: Job) -> Result<(), Error> {
        let mut state = self.state.lock();
        if !state.open {
            return Err(Error::Unavailable { message: "the instance is shutting down: try another".into() });
        }
        let granted = state.is_granted(&job);
        if state.waiting >= self.capacity {
            state.clear_useless();
        }
        if !granted && state.waiting >= self.capacity && state.has_its_part(&job, self.capacity) {
            let message =
                format!("the queue is full with {} requests: try later, or add instances", self.capacity);
            return Err(Error::Overloaded { message, retry_after: RETRY_AFTER });
        }
        state.push(job, granted);
        self.tell(state, None);
        self.arrived.notify_one();
        Ok(())
    }

    /// Starts a job at once on the caller's thread, if an instance is free and no other work precedes it.
    pub(crate) fn begin(&self, job: &Job) -> Option<Ticket> {
        let mut state = self.state.lock();
        if !state.open || state.waiting > 0 || state.is_full() {
            return None;
        }
        let granted = state.is_granted(job);
        Some(state.begin(job, granted))
    }

    /// Ends that job, which ran for `took`: an instance may have slept meanwhile although work waited.
    pub(crate) fn done_at_once(&self, ticket: Ticket, took: Duration) {
        if self.done(ticket, took) {
            self.arrived.notify_one();
        }
    }

    /// The next job, once there is one; `None` once the queue is closed and empty. The caller counts as busy until it
    /// calls [`done`](Self::done).
    pub(crate) fn take(&self) -> Option<(Job, Ticket)> {
        let mut state = self.state.lock();
        loop {
            // A run on a reading thread may use this instance.
            let is_full = state.open && state.is_full();
            let next = if is_full { None } else { state.pop() };
            if let Some((job, granted)) = next {
                let ticket = state.begin(&job, granted);
                self.tell(state, None);
                return Some((job, ticket));
            }
            let letters = self.written(&mut state, None);
            if !letters.is_empty() {
                MutexGuard::unlocked(&mut state, || deliver(letters));
                continue;
            }
            if !is_full && state.busy == 0 {
                self.idle.notify_waiters();
            }
            if !state.open {
                return None;
            }
            self.arrived.wait(&mut state);
        }
    }

    /// A job's run has ended and its answer follows: its grant is passed on, while its thread stays busy until `done`.
    pub(crate) fn hand_on(&self, ticket: &mut Ticket) {
        let mut state = self.state.lock();
        state.hand_on(ticket);
        self.tell(state, ticket.frontend);
    }

    /// Ends a job that a thread took, after its answer. Returns whether there is more work.
    pub(crate) fn done(&self, ticket: Ticket, took: Duration) -> bool {
        let mut state = self.state.lock();
        state.end(ticket, took);
        let more = state.waiting > 0;
        if state.is_idle() {
            self.idle.notify_waiters();
        }
        self.done.notify_waiters();
        self.tell(state, None);
        more
    }

    /// Waits until one of the running threads ends its job; with one thread, its current job.
    pub(crate) async fn settled(&self) {
        let done = self.done.notified();
        tokio::pin!(done);
        // Enabled before the check, so that an end in between is not missed.
        done.as_mut().enable();
        if self.state.lock().busy > 0 {
            done.await;
        }
    }

    /// Waiting jobs that can share a batch with `first`, of at most `rows` rows in total.
    pub(crate) fn take_mates(&self, first: &Job, rows: usize) -> Vec<Job> {
        let mut state = self.state.lock();
        state.clear_useless();
        state.extract_mates(first, rows)
    }

    /// Waits until nothing waits or runs.
    pub(crate) async fn wait_idle(&self) {
        loop {
            let notified = self.idle.notified();
            tokio::pin!(notified);
            // Enabled before the check, so that an idle moment in between is not missed.
            notified.as_mut().enable();
            {
                let mut state = self.state.lock();
                state.clear_useless();
                let is_idle = state.is_idle();
                self.tell(state, None);
                if is_idle {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Takes no more jobs; waiting ones are still served.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.open = false;
        // A closed queue grants nothing.
        state.mailboxes.clear();
        state.granter = Granter::new(0);
        drop(state);
        self.arrived.notify_all();
    }

    /// Looks after old grants, and returns when to look again.
    fn look(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let now = state.origin.elapsed();
        state.granter.settle(now);
        state.look = state.granter.next_look();
        let at = state.look.map(|at| state.origin + at);
        self.tell(state, None);
        at
    }

    /// Sends what is to be told to frontends, after the lock.
    fn tell(&self, mut state: MutexGuard<'_, State>, answering: Option<Frontend>) {
        let letters = self.written(&mut state, answering);
        drop(state);
        deliver(letters);
    }

    /// The messages for frontends. That to the frontend of the job that just ended may be sent with the answer. Reschedules the
    /// look at old grants.
    fn written(&self, state: &mut State, answering: Option<Frontend>) -> Vec<Letter> {
        let next = state.granter.next_look();
        if next.is_some_and(|next| state.look.is_none_or(|at| next < at)) {
            state.look = next;
            self.sooner.notify_one();
        }
        let sharing = &state.metrics.sharing;
        sharing.frontends.set(state.mailboxes.len() as i64);
        sharing.grants.set(state.granter.unused() as i64);
        sharing.asking.set(state.granter.asking() as i64);
        let letters = state.granter.told().filter_map(|(frontend, told)| {
            let at_once = answering != Some(frontend);
            Some((state.mailboxes.get(&frontend)?.clone(), told, at_once))
        });
        letters.collect()
    }
}

fn deliver(letters: Vec<Letter>) {
    for (mailbox, told, at_once) in letters {
        mailbox.post(told, at_once);
    }
}

impl State {
    /// Whether a job that comes has a grant, which it uses.
    fn is_granted(&mut self, job: &Job) -> bool {
        job.frontend.is_some_and(|frontend| self.granter.comes(frontend))
    }

    /// The line of a share; created if it does not exist.
    fn line(&mut self, payer: &Payer) -> &mut Line {
        if !self.lines.contains_key(payer) && matches!(payer, Payer::Model(_)) && !self.book.knows(payer) {
            self.book.promise(payer, Terms { weight: 1.0, reserved: 0 });
        }
        let metrics = &self.metrics;
        self.lines.entry(payer.clone()).or_insert_with(|| Line::new(metrics.share(payer)))
    }

    fn push(&mut self, job: Job, granted: bool) {
        self.arrived += 1;
        self.waiting += 1;
        let place = Place { needs_grant: !granted, priority: job.priority, number: self.arrived };
        self.book.wait(&job.payer);
        let line = self.line(&job.payer.clone());
        line.jobs.insert(place, job);
        line.show();
    }

    /// Whether a job's share uses its part of a full queue. Shares below their part are admitted, so that a flood does
    /// not shut others out.
    fn has_its_part(&self, job: &Job, capacity: usize) -> bool {
        let own = self.lines.get(&job.payer).map_or(0, |line| line.jobs.len());
        let waits = |(payer, line): &(&Payer, &Line)| **payer != job.payer && !line.jobs.is_empty();
        own * (self.lines.iter().filter(waits).count() + 1) >= capacity
    }

    /// The next line, and its rank.
    fn first(&self) -> Option<(Rank, &Payer)> {
        let ranked = self.lines.iter().filter_map(|(payer, line)| {
            let Place { needs_grant, priority, number } = *line.jobs.first_key_value()?.0;
            let class = Class::of(priority);
            let turn = self.book.turn(payer, class.work());
            Some(((needs_grant, turn.waits_its_turn, class, turn.due, number), payer))
        });
        ranked.min_by_key(|(rank, _)| *rank)
    }

    /// The next job that is still wanted, and whether it has a grant.
    fn pop(&mut self) -> Option<(Job, bool)> {
        loop {
            let payer = self.first()?.1.clone();
            let line = self.lines.get_mut(&payer)?;
            let (place, job) = line.jobs.pop_first()?;
            line.show();
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
        job.model.statistics.dropped.inc();
        let waited = job.arrived.elapsed();
        job.answer(Err(Error::DeadlineExceeded { waited }));
    }

    fn begin(&mut self, job: &Job, granted: bool) -> Ticket {
        self.busy += 1;
        if !granted {
            self.granter.begin();
        }
        let (model, payer) = (job.model.clone(), job.payer.clone());
        // A job that begins at once was in no line, and is charged like others.
        self.line(&payer);
        let charge = self.book.begin(&payer, &model.metadata.name, Class::of(job.priority).work());
        Ticket { model, payer, charge, frontend: job.frontend, handed_on: false }
    }

    /// A thread's job has ended: its instance is free for the next. While jobs wait here, its grant does not stay with its frontend.
    fn hand_on(&mut self, ticket: &mut Ticket) {
        if !std::mem::replace(&mut ticket.handed_on, true) {
            let now = self.origin.elapsed();
            self.granter.end(now, ticket.frontend.filter(|_| self.waiting == 0));
        }
    }

    fn end(&mut self, mut ticket: Ticket, took: Duration) {
        self.hand_on(&mut ticket);
        self.busy -= 1;
        self.book.end(&ticket.payer, &ticket.model.metadata.name, ticket.charge, took);
        for (payer, account) in self.book.accounts() {
            if let Some(Line { metrics, counted, .. }) = self.lines.get_mut(payer) {
                metrics.used.inc_by((account.used - counted.0).max(0.0));
                metrics.entitled.inc_by((account.entitled - counted.1).max(0.0));
                *counted = (account.used, account.entitled);
            }
        }
        if self.lines.len() > LINES_KEPT {
            self.book.forget(|payer| matches!(payer, Payer::Model(_)));
            self.lines.retain(|payer, line| !line.jobs.is_empty() || self.book.knows(payer));
            let models: BTreeSet<&str> = self.lines.keys().map(|payer| payer.labels()[1]).collect();
            self.book.forget_models(|model| !models.contains(&**model));
        }
    }

    /// Whether all instances are busy.
    fn is_full(&self) -> bool {
        self.busy >= self.threads
    }

    fn is_idle(&self) -> bool {
        self.busy == 0 && self.waiting == 0
    }

    fn clear_useless(&mut self) {
        let now = Instant::now();
        let mut useless = Vec::new();
        for (payer, line) in &mut self.lines {
            let before = useless.len();
            useless.extend(line.jobs.extract_if(.., |_, job| job.is_useless(now)));
            line.show();
            self.waiting -= useless.len() - before;
            self.book.leave(payer, (useless.len() - before) as u32);
        }
        useless.into_iter().for_each(|(place, job)| self.drop_useless(place, job));
    }

    /// Jobs in order, up to the first that does not fit, so that small jobs do not overtake a large one forever.
    fn extract_mates(&mut self, first: &Job, mut rows: usize) -> Vec<Job> {
        let Some(line) = self.lines.get_mut(&first.payer) else { return Vec::new() };
        let mates = line.jobs.iter().filter(|(_, job)| first.can_join(job));
        let fitting = mates.map_while(|(&place, job)| {
            rows = rows.checked_sub(job.rows)?;
            Some(place)
        });
        let places: Vec<_> = fitting.collect();
        let mates: Vec<Job> = places.into_iter().filter_map(|place| line.jobs.remove(&place)).collect();
        line.show();
        self.waiting -= mates.len();
        self.book.leave(&first.payer, mates.len() as u32);
        mates
    }
}

/// A queue as frontends see it: it grants them its threads.
pub(crate) struct Grants(pub(crate) Arc<Queue>);

impl Giver for Grants {
    fn slots(&self) -> Option<NonZeroU16> {
        NonZeroU16::new(u16::try_from(self.0.state.lock().threads).unwrap_or(u16::MAX))
    }

    fn join(&self, mailbox: Box<dyn Mailbox>) -> Frontend {
        let mut state = self.0.state.lock();
        state.frontends += 1;
        let frontend = Frontend(state.frontends);
        if state.open {
            state.granter.join(frontend);
            state.mailboxes.insert(frontend, mailbox.into());
        }
        // Under the lock: the order of messages that say whether frontends share the instances matters.
        deliver(self.0.written(&mut state, None));
        if frontend == Frontend(1) {
            tokio::spawn(watch(Arc::downgrade(&self.0)));
        }
        frontend
    }

    fn leave(&self, frontend: Frontend) {
        let mut state = self.0.state.lock();
        let now = state.origin.elapsed();
        state.granter.leave(now, frontend);
        state.mailboxes.remove(&frontend);
        deliver(self.0.written(&mut state, None));
    }

    fn hears(&self, frontend: Frontend, order: Order) {
        let mut state = self.0.state.lock();
        let now = state.origin.elapsed();
        state.granter.hears(now, frontend, order);
        self.0.tell(state, None);
    }
}

/// Looks after old grants while the queue exists.
async fn watch(queue: Weak<Queue>) {
    /// The interval without grants to look after, in which a dropped queue is noticed.
    const LONGEST: Duration = Duration::from_secs(1);
    loop {
        let Some(strong) = queue.upgrade() else { return };
        let at = strong.look();
        let sooner = strong.sooner.clone();
        drop(strong);
        let notified = sooner.notified();
        let pause = at.map_or(LONGEST, |at| at.saturating_duration_since(Instant::now()));
        // Before or after, but not both.
        let _ = tokio::time::timeout(pause.min(LONGEST), notified).await;
    }
}

/// A share, as instances identify it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Payer {
    /// A configured share.
    Share(Arc<str>),
    /// The model's own share.
    Model(Arc<str>),
}

impl Payer {
    /// The share of a model's requests that name none.
    pub(crate) fn of_model(model: &str, table: &Table) -> Self {
        match table.of_model(model) {
            Some(share) => Self::Share(table.name(share).clone()),
            None => Self::Model(model.into()),
        }
    }

    /// The share with this name, if it is configured or is that of a model for which `serves` returns true. Clients can
    /// send any name, so an unknown one gets no account.
    pub(crate) fn named(share: &str, table: &Table, serves: impl Fn(&str) -> bool) -> Option<Self> {
        match share.strip_prefix(OWN_SHARE) {
            Some(model) => serves(model).then(|| Self::of_model(model, table)),
            None => table.find(share).map(|share| Self::Share(table.name(share).clone())),
        }
    }

    /// Share and model, as labels of metrics.
    pub(crate) fn labels(&self) -> [&str; 2] {
        match self {
            Self::Share(name) => [name, ""],
            Self::Model(name) => ["", name],
        }
    }
}

#[cfg(test)]
mod tests {
    use parm_shares::{Settings, ShareSettings};

    use super::*;

    #[test]
    fn unknown_share_gets_no_account() {
        let own = ShareSettings { models: vec!["m".into()], ..ShareSettings::default() };
        let table = Table::new(&Settings([("gold".to_owned(), own)].into()));
        let named = |share| Payer::named(share, &table, |model| ["m", "n"].contains(&model));
        assert_eq!(named("gold"), Some(Payer::Share("gold".into())));
        assert_eq!(named("model:n"), Some(Payer::Model("n".into())));
        assert_eq!(named("model:m"), Some(Payer::Share("gold".into())), "its model is in a share");
        assert_eq!([named("silver"), named("model:x"), named("n")], [None, None, None]);
    }
}
