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

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use parm_grants::{Granter, Order};
use parm_protocol::Error;
use parm_protocol::fleet::{Frontend, Mailbox};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Job;
use super::state::{Letter, State, Ticket};
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
    /// Signalled when old grants need a look earlier than announced.
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
        if !state.may_begin_at_once() {
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

    /// A thread's job has ended and is about to be answered: its instance is free for the next.
    pub(crate) fn hand_on(&self, ticket: &mut Ticket) {
        let mut state = self.state.lock();
        state.hand_on(ticket);
        self.tell(state, ticket.frontend());
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

    /// Registers a frontend. Returns whether it is the first one ever.
    pub(super) fn join(&self, mailbox: Arc<dyn Mailbox>) -> (Frontend, bool) {
        let mut state = self.state.lock();
        state.frontends += 1;
        let frontend = Frontend(state.frontends);
        if state.open {
            state.granter.join(frontend);
            state.mailboxes.insert(frontend, mailbox);
        }
        self.tell_all(state);
        (frontend, frontend == Frontend(1))
    }

    /// Removes a frontend.
    pub(super) fn leave(&self, frontend: Frontend) {
        let mut state = self.state.lock();
        let now = state.now();
        state.granter.leave(now, frontend);
        state.mailboxes.remove(&frontend);
        self.tell_all(state);
    }

    /// Tells frontends whether they share the instances, under the lock: the order of these messages matters.
    fn tell_all(&self, mut state: MutexGuard<'_, State>) {
        deliver(self.written(&mut state, None));
    }

    /// Handles a frontend's message.
    pub(super) fn hears(&self, frontend: Frontend, order: Order) {
        let mut state = self.state.lock();
        let now = state.now();
        state.granter.hears(now, frontend, order);
        self.tell(state, None);
    }

    /// Looks after old grants, and returns when to look again.
    pub(super) fn look(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let now = state.now();
        state.granter.settle(now);
        state.look = state.granter.next_look();
        let at = state.look.map(|at| state.instant(at));
        self.tell(state, None);
        at
    }

    /// Sends what is to be told to frontends, after the lock.
    fn tell(&self, mut state: MutexGuard<'_, State>, answering: Option<Frontend>) {
        let letters = self.written(&mut state, answering);
        drop(state);
        deliver(letters);
    }

    /// Returns what is to be told to frontends, and reschedules the look at old grants.
    fn written(&self, state: &mut State, answering: Option<Frontend>) -> Vec<Letter> {
        let next = state.granter.next_look();
        if next.is_some_and(|next| state.look.is_none_or(|at| next < at)) {
            state.look = next;
            self.sooner.notify_one();
        }
        state.letters(answering)
    }
}

fn deliver(letters: Vec<Letter>) {
    for (mailbox, told, at_once) in letters {
        mailbox.post(told, at_once);
    }
}
