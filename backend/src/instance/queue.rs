//! The bounded queue between requests and instances.
//!
//! A share that has instances reserved and does not use them goes first. Then what is late (priority 1), and what may help and
//! need not be done last (255). Among the rest the share is next that has had least of the instances' time for its weight, so
//! that nobody's flood keeps others waiting; of one share's jobs those of higher priority, then the oldest. A share is one that
//! is set up, or a model's own. Jobs that nobody waits for any more are never handed to a thread, and never
//! stand in the way of one that somebody waits for: before a full queue refuses a job, it is cleared of them.
//!
//! Where frontends take part in tokens, their reservations stand in the same order as jobs, and a thread that is free is
//! promised to one of them at a time: see the crate `tokens`, and `state` beside this.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use parm_protocol::Error;
use parm_protocol::fleet::{Mailbox, Wish};
use parm_tokens::{Frontend, Order};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Job;
use super::arrivals::Arrivals;
use super::state::{Letter, State, Ticket, drop_useless};
use crate::{Config, Metrics};

/// When a refused client may try again: about the time in which a short queue moves.
const RETRY_AFTER: Duration = Duration::from_millis(100);

pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Arrivals,
    idle: Notify,
    /// Told whenever a thread is done with what it took.
    done: Notify,
    /// Told when the tokens are to be looked at sooner than was said.
    pub(super) sooner: Arc<Notify>,
    capacity: usize,
}

impl Queue {
    /// The queue of so many threads.
    pub(crate) fn new(config: &Config, threads: usize, metrics: &Metrics) -> Self {
        Self {
            state: Mutex::new(State::new(config, threads, metrics.clone())),
            arrived: Arrivals::default(),
            idle: Notify::new(),
            done: Notify::new(),
            sooner: Arc::default(),
            capacity: config.queue.get(),
        }
    }

    /// Puts a job in line, or says why not.
    pub(crate) fn push(&self, job: Job) -> Result<(), Error> {
        let mut state = self.state.lock();
        if !state.open {
            return Err(Error::Unavailable { message: "the instance is shutting down: try another".into() });
        }
        let Some(job) = state.redeem(job) else {
            drop(state);
            self.arrived.one();
            return Ok(());
        };
        if state.waiting >= self.capacity {
            state.clear_useless();
        }
        if state.waiting >= self.capacity && state.has_its_part(&job, self.capacity) {
            let message = format!("{} requests wait already: try later, or add instances", self.capacity);
            return Err(Error::Overloaded { message, retry_after: RETRY_AFTER });
        }
        state.push(job);
        if state.desk.is_wanted() {
            self.settle(state);
        } else {
            drop(state);
            self.arrived.one();
        }
        Ok(())
    }

    /// Begins a job at once, for who runs it where it is, if an instance is free and nobody comes before.
    pub(crate) fn begin(&self, job: &Job) -> Option<Ticket> {
        let mut state = self.state.lock();
        let ticket = state.may_begin_at_once().then(|| state.begin(job, false))?;
        self.post(&mut state);
        Some(ticket)
    }

    /// That job has been answered, and ran for so long: an instance may have slept while it ran, though something waited.
    pub(crate) fn done_at_once(&self, ticket: Ticket, took: Duration) {
        if self.done(ticket, took) {
            self.arrived.one();
        }
    }

    /// The next job, once there is one; `None` once the queue is closed and empty. The caller counts as busy until it
    /// calls [`done`](Self::done).
    pub(crate) fn take(&self) -> Option<(Job, Ticket)> {
        let mut state = self.state.lock();
        loop {
            match self.next(&mut state) {
                Poll::Ready(next) => return next,
                Poll::Pending => self.arrived.wait(&mut state),
            }
        }
    }

    /// The same, for an instance that is a task.
    pub(crate) async fn taken(&self) -> Option<(Job, Ticket)> {
        loop {
            let arrival = self.arrived.next();
            tokio::pin!(arrival);
            // Enabled before the look, so that what comes in between is not missed.
            arrival.as_mut().enable();
            if let Poll::Ready(next) = self.next(&mut self.state.lock()) {
                return next;
            }
            arrival.await;
        }
    }

    /// What an instance without a job does next: waits, or takes a job, or ends where there will be none.
    fn next(&self, state: &mut MutexGuard<'_, State>) -> Poll<Option<(Job, Ticket)>> {
        loop {
            if state.open && state.is_full() {
                return Poll::Pending; // its place is taken by what runs where it was read
            }
            if let Some(job) = state.pop_promised() {
                let ticket = state.begin(&job, true);
                return Poll::Ready(Some((job, ticket)));
            }
            while let Some(job) = state.pop() {
                if !job.is_useless(Instant::now()) {
                    let ticket = state.begin(&job, false);
                    if state.desk.is_used() && state.waiting > 0 {
                        // Several may have waited for one promise.
                        self.arrived.one();
                    }
                    self.post(state);
                    return Poll::Ready(Some((job, ticket)));
                }
                drop_useless(job);
            }
            if self.post(state) {
                continue; // the lock was let go of
            }
            if state.busy == 0 {
                self.idle.notify_waiters();
            }
            return if state.open { Poll::Pending } else { Poll::Ready(None) };
        }
    }

    /// A thread's job has ended and is about to be answered: whoever comes next may have the instance.
    pub(crate) fn hand_on(&self, ticket: &mut Ticket) {
        let mut state = self.state.lock();
        if state.desk.is_used() {
            state.hand_on(ticket);
            let letters = self.written(&mut state, ticket.frontend());
            drop(state);
            deliver(letters);
        }
    }

    /// A thread that took a job has answered it, and whoever ran beside it, in so long. Whether there is something to take.
    pub(crate) fn done(&self, ticket: Ticket, took: Duration) -> bool {
        let mut state = self.state.lock();
        state.end(ticket, took);
        let more = state.has_more();
        if state.is_idle() {
            self.idle.notify_waiters();
        }
        self.done.notify_waiters();
        if state.desk.is_used() {
            let letters = self.written(&mut state, None);
            drop(state);
            deliver(letters);
        }
        more
    }

    /// Waits until a thread that is at work now is done; of one thread, that is whatever it runs.
    pub(crate) async fn settled(&self) {
        let done = self.done.notified();
        tokio::pin!(done);
        // Enabled before the check, so that an end in between is not missed.
        done.as_mut().enable();
        if self.state.lock().busy > 0 {
            done.await;
        }
    }

    /// Jobs that can share a batch with `first`, of at most `rows` rows together; waits for more until `until`.
    pub(crate) fn take_mates(&self, first: &Job, mut rows: usize, until: Instant) -> Vec<Job> {
        let mut mates = Vec::new();
        let mut state = self.state.lock();
        loop {
            state.clear_useless();
            for job in state.extract_mates(first, rows) {
                rows -= job.rows;
                mates.push(job);
            }
            if rows == 0 || !state.open || Instant::now() >= until {
                return mates;
            }
            // What came for another model must not wait for this batch: pass the wake-up on to an idle thread.
            if state.waiting > 0 {
                self.arrived.one();
            }
            self.arrived.wait_until(&mut state, until);
        }
    }

    /// Waits until nothing is in line or at work.
    pub(crate) async fn wait_idle(&self) {
        loop {
            let notified = self.idle.notified();
            tokio::pin!(notified);
            // Enabled before the check, so that an idle moment in between is not missed.
            notified.as_mut().enable();
            {
                let mut state = self.state.lock();
                state.clear_useless();
                if state.is_idle() {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Takes no more jobs; those in line are still handed out.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.open = false;
        // Nobody waits for a promise of a queue that ends.
        let frontends: Vec<_> = std::mem::take(&mut state.mailboxes).into_keys().collect();
        frontends.into_iter().for_each(|frontend| state.desk.leave(frontend));
        drop(state);
        self.arrived.all();
    }

    /// A frontend takes part. Whether it is the first that ever did.
    pub(super) fn join(&self, mailbox: Arc<dyn Mailbox>) -> (Frontend, bool) {
        let mut state = self.state.lock();
        state.frontends += 1;
        let frontend = Frontend(state.frontends);
        if state.open {
            state.desk.join(frontend);
            state.mailboxes.insert(frontend, mailbox);
        }
        let first = state.frontends == 1;
        self.settle(state);
        (frontend, first)
    }

    /// A frontend is gone.
    pub(super) fn leave(&self, frontend: Frontend) {
        let mut state = self.state.lock();
        state.desk.leave(frontend);
        state.mailboxes.remove(&frontend);
        self.settle(state);
    }

    /// A frontend says something.
    pub(super) fn told(&self, frontend: Frontend, order: Order<Wish>) {
        let mut state = self.state.lock();
        state.told(frontend, order);
        self.settle(state);
    }

    /// Looks at the tokens, and says when to look again.
    pub(super) fn tick(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let now = state.now();
        state.desk.tick(now);
        let runs = state.arrange();
        state.tick = state.desk.tick(now);
        let letters = state.letters(None);
        let at = state.tick.map(|at| state.instant(at));
        drop(state);
        if runs {
            self.arrived.one();
        }
        deliver(letters);
        at
    }

    /// Gives out what is free, and lets a thread know if a job may run.
    fn settle(&self, mut state: MutexGuard<'_, State>) {
        let runs = state.arrange();
        let letters = self.written(&mut state, None);
        drop(state);
        if runs {
            self.arrived.one();
        }
        deliver(letters);
    }

    /// Sends what is to be sent, without the lock. Whether it was let go of.
    fn post(&self, state: &mut MutexGuard<'_, State>) -> bool {
        if !state.desk.is_used() {
            return false;
        }
        let letters = self.written(state, None);
        let any = !letters.is_empty();
        if any {
            MutexGuard::unlocked(state, || deliver(letters));
        }
        any
    }

    /// The letters to be sent; and has the tokens looked at in time.
    fn written(&self, state: &mut State, answering: Option<Frontend>) -> Vec<Letter> {
        let now = state.now();
        let next = state.desk.tick(now);
        if next.is_some_and(|next| state.tick.is_none_or(|at| next < at)) {
            state.tick = next;
            self.sooner.notify_one();
        }
        state.letters(answering)
    }
}

fn deliver(letters: Vec<Letter>) {
    for (mailbox, message, at_once) in letters {
        mailbox.post(message, at_once);
    }
}
