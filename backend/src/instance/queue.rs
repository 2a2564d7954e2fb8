//! The bounded queue between requests and instances.
//!
//! The order of service is: shares with reserved instances that they do not use, late queries (priority 1), other work
//! by weighted fair queueing over shares, and last spare work (priority 255). Weighted fair queueing serves the share
//! with the least instance time for its weight, so that a flood of one share does not delay others. In a share, higher
//! priority goes first, then age. A share is a configured one or a model's own. Cancelled jobs never reach a thread,
//! and a full queue drops them before it rejects a job.
//!
//! Reservations of frontends that take part in tokens have the same order as jobs, and a free thread is promised to one
//! of them at a time: see the crate `tokens`, and `state`.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use parm_protocol::Error;
use parm_protocol::fleet::{Mailbox, Wish};
use parm_tokens::{Frontend, Order};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Job;
use super::state::{Letter, State, Ticket, drop_useless};
use crate::{Config, Metrics};

/// The retry delay of a rejected client: about the time in which a short queue moves.
const RETRY_AFTER: Duration = Duration::from_millis(100);

pub(crate) struct Queue {
    state: Mutex<State>,
    /// Signalled when work arrives.
    arrived: Condvar,
    idle: Notify,
    /// Signalled when a thread ends its job.
    done: Notify,
    /// Signalled when a token timer becomes due earlier than announced.
    pub(super) sooner: Arc<Notify>,
    capacity: usize,
    threads: usize,
}

impl Queue {
    /// The queue of this number of threads.
    pub(crate) fn new(config: &Config, threads: usize, metrics: &Metrics) -> Self {
        Self {
            state: Mutex::new(State::new(config, threads, metrics.clone())),
            arrived: Condvar::new(),
            idle: Notify::new(),
            done: Notify::new(),
            sooner: Arc::default(),
            capacity: config.queue.get(),
            threads,
        }
    }

    /// Jobs that run at a time.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Queues a job, or rejects it.
    pub(crate) fn push(&self, job: Job) -> Result<(), Error> {
        let mut state = self.state.lock();
        if !state.open {
            return Err(Error::Unavailable { message: "the instance is shutting down: try another".into() });
        }
        let Some(job) = state.redeem(job) else {
            drop(state);
            self.arrived.notify_one();
            return Ok(());
        };
        if state.waiting >= self.capacity {
            state.clear_useless();
        }
        if state.waiting >= self.capacity && state.has_its_part(&job, self.capacity) {
            let message =
                format!("the queue is full with {} requests: try later, or add instances", self.capacity);
            return Err(Error::Overloaded { message, retry_after: RETRY_AFTER });
        }
        state.push(job);
        if state.desk.is_wanted() {
            self.settle(state);
        } else {
            drop(state);
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Starts a job at once on the caller's thread, if an instance is free and no other work precedes it.
    pub(crate) fn begin(&self, job: &Job) -> Option<Ticket> {
        let mut state = self.state.lock();
        let ticket = state.may_begin_at_once().then(|| state.begin(job, false))?;
        self.post(&mut state);
        Some(ticket)
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
            match self.next(&mut state) {
                Poll::Ready(next) => return next,
                Poll::Pending => self.arrived.wait(&mut state),
            }
        }
    }

    /// The next step of an idle instance: wait, take a job, or end.
    fn next(&self, state: &mut MutexGuard<'_, State>) -> Poll<Option<(Job, Ticket)>> {
        loop {
            if state.open && state.is_full() {
                return Poll::Pending; // a run on a reading thread uses its place
            }
            if let Some(job) = state.pop_promised() {
                let ticket = state.begin(&job, true);
                return Poll::Ready(Some((job, ticket)));
            }
            while let Some(job) = state.pop() {
                if !job.is_useless(Instant::now()) {
                    let ticket = state.begin(&job, false);
                    if state.desk.is_used() && state.waiting > 0 {
                        // Several threads may have waited for one promise.
                        self.arrived.notify_one();
                    }
                    self.post(state);
                    return Poll::Ready(Some((job, ticket)));
                }
                drop_useless(job);
            }
            if self.post(state) {
                continue; // the lock was released
            }
            if state.busy == 0 {
                self.idle.notify_waiters();
            }
            return if state.open { Poll::Pending } else { Poll::Ready(None) };
        }
    }

    /// A thread's job has ended and is about to be answered: its instance is free for the next.
    pub(crate) fn hand_on(&self, ticket: &mut Ticket) {
        let mut state = self.state.lock();
        if state.desk.is_used() {
            state.hand_on(ticket);
            let letters = self.written(&mut state, ticket.frontend());
            drop(state);
            deliver(letters);
        }
    }

    /// Ends a job that a thread took, after its answer. Returns whether there is more work.
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

    /// Jobs that can share a batch with `first`, of at most `rows` rows in total; waits for more until `until`.
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
            // A job for another model must not wait for this batch: pass the wake-up on to an idle thread.
            if state.waiting > 0 {
                self.arrived.notify_one();
            }
            self.arrived.wait_until(&mut state, until.into_std());
        }
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
                if state.is_idle() {
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
        // A closed queue makes no promises.
        let frontends: Vec<_> = std::mem::take(&mut state.mailboxes).into_keys().collect();
        frontends.into_iter().for_each(|frontend| state.desk.leave(frontend));
        drop(state);
        self.arrived.notify_all();
    }

    /// Registers a frontend. Returns whether it is the first one ever.
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

    /// Removes a frontend.
    pub(super) fn leave(&self, frontend: Frontend) {
        let mut state = self.state.lock();
        state.desk.leave(frontend);
        state.mailboxes.remove(&frontend);
        self.settle(state);
    }

    /// Handles a frontend's message.
    pub(super) fn told(&self, frontend: Frontend, order: Order<Wish>) {
        let mut state = self.state.lock();
        state.told(frontend, order);
        self.settle(state);
    }

    /// Runs the token timers, and returns the time of the next one.
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
            self.arrived.notify_one();
        }
        deliver(letters);
        at
    }

    /// Gives out free instances, and wakes a thread if a job may run.
    fn settle(&self, mut state: MutexGuard<'_, State>) {
        let runs = state.arrange();
        let letters = self.written(&mut state, None);
        drop(state);
        if runs {
            self.arrived.notify_one();
        }
        deliver(letters);
    }

    /// Sends pending messages without the lock. Returns whether the lock was released.
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

    /// Returns the pending messages, and reschedules the token timers.
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
