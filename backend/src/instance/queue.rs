//! The bounded queue between requests and instances.
//!
//! What is late goes first (priority 1), what may help and need not be done last (255). Among the rest the model is next
//! that has had least of the instances' time for its weight, so that no model's flood keeps others waiting; of one model's
//! jobs those of higher priority, then the oldest. Jobs that nobody waits for any more are never handed to a thread, and never
//! stand in the way of one that somebody waits for: before a full queue refuses a job, it is cleared of them.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use parm_protocol::Error;
use parm_shares::{Charge, Clock, Share};
use tokio::sync::Notify;

use super::Job;
use crate::host::Loaded;

/// When a refused client may try again: about the time in which a short queue moves.
const RETRY_AFTER: Duration = Duration::from_millis(100);

pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    idle: Notify,
    /// Told whenever a thread is done with what it took.
    done: Notify,
    capacity: usize,
}

struct State {
    /// By model.
    lines: BTreeMap<String, Line>,
    clock: Clock,
    /// Of models whose weight is not 1.
    weights: BTreeMap<String, NonZeroU16>,
    /// Jobs in line.
    waiting: usize,
    next: u64,
    /// Threads at work.
    busy: usize,
    open: bool,
}

/// A model's jobs, and its share of the instances' time.
struct Line {
    share: Share,
    /// By priority, then by arrival.
    jobs: BTreeMap<(u8, u64), Job>,
    running: usize,
}

/// A job that a thread took: what its model was charged for it.
pub(crate) struct Ticket {
    model: Arc<Loaded>,
    charge: Charge,
}

/// Models without jobs whose service is remembered; more would be the doing of names that come and go.
const LINES_KEPT: usize = 256;

impl Queue {
    pub(crate) fn new(capacity: usize, weights: BTreeMap<String, NonZeroU16>) -> Self {
        let (lines, clock) = (BTreeMap::new(), Clock::default());
        let state = State { lines, clock, weights, waiting: 0, next: 0, busy: 0, open: true };
        Self {
            state: Mutex::new(state),
            arrived: Condvar::new(),
            idle: Notify::new(),
            done: Notify::new(),
            capacity,
        }
    }

    /// Puts a job in line, or says why not.
    pub(crate) fn push(&self, job: Job) -> Result<(), Error> {
        let mut state = self.state.lock();
        if !state.open {
            return Err(Error::Unavailable { message: "the instance is shutting down: try another".into() });
        }
        if state.waiting >= self.capacity {
            state.clear_useless();
        }
        if state.waiting >= self.capacity {
            let message = format!("{} requests wait already: try later, or add instances", self.capacity);
            return Err(Error::Overloaded { message, retry_after: RETRY_AFTER });
        }
        state.push(job);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// The next job, once there is one; `None` once the queue is closed and empty. The caller counts as busy until it
    /// calls [`done`](Self::done).
    pub(crate) fn take(&self) -> Option<(Job, Ticket)> {
        let mut state = self.state.lock();
        loop {
            while let Some(job) = state.pop() {
                if !job.is_useless(Instant::now()) {
                    let ticket = state.begin(&job);
                    return Some((job, ticket));
                }
                drop_useless(job);
            }
            if state.busy == 0 {
                self.idle.notify_waiters();
            }
            if !state.open {
                return None;
            }
            self.arrived.wait(&mut state);
        }
    }

    /// A thread that took a job has answered it, and whoever ran beside it, in so long.
    pub(crate) fn done(&self, ticket: Ticket, took: Duration) {
        let mut state = self.state.lock();
        state.end(ticket, took);
        if state.busy == 0 && state.waiting == 0 {
            self.idle.notify_waiters();
        }
        self.done.notify_waiters();
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
                self.arrived.notify_one();
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
                if state.busy == 0 && state.waiting == 0 {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Takes no more jobs; those in line are still handed out.
    pub(crate) fn close(&self) {
        self.state.lock().open = false;
        self.arrived.notify_all();
    }
}

impl State {
    fn push(&mut self, job: Job) {
        let model = &job.model.metadata.name;
        if !self.lines.contains_key(model) {
            let weight = self.weights.get(model).map_or(1, |weight| weight.get());
            let line = Line { share: Share::new(weight.into()), jobs: BTreeMap::new(), running: 0 };
            self.lines.insert(model.clone(), line);
        }
        let jobs = self.lines.get_mut(model).map(|line| &mut line.jobs);
        jobs.expect("it was just put there").insert((job.priority, self.next), job);
        self.next += 1;
        self.waiting += 1;
    }

    /// The job that comes next.
    fn pop(&mut self) -> Option<Job> {
        let clock = self.clock;
        let rank = |line: &Line| {
            let ((priority, number), _) = line.jobs.first_key_value()?;
            Some((urgency(*priority), line.share.due(&clock), *number))
        };
        let ranked = self.lines.values_mut().filter_map(|line| Some((rank(line)?, line)));
        let (_, line) = ranked.min_by_key(|(rank, _)| *rank)?;
        let (_, job) = line.jobs.pop_first()?;
        self.waiting -= 1;
        Some(job)
    }

    fn begin(&mut self, job: &Job) -> Ticket {
        self.busy += 1;
        let model = job.model.clone();
        let charge = self.lines.get_mut(&model.metadata.name).map_or_else(Charge::default, |line| {
            line.running += 1;
            line.share.begin(&mut self.clock)
        });
        Ticket { model, charge }
    }

    fn end(&mut self, ticket: Ticket, took: Duration) {
        self.busy -= 1;
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

    fn clear_useless(&mut self) {
        let now = Instant::now();
        for line in self.lines.values_mut() {
            let useless = line.jobs.extract_if(.., |_, job| job.is_useless(now));
            self.waiting -= useless.map(|(_, job)| drop_useless(job)).count();
        }
    }

    /// In order, up to the first that does not fit: a large job is not overtaken for ever by small ones.
    fn extract_mates(&mut self, first: &Job, mut rows: usize) -> Vec<Job> {
        let Some(line) = self.lines.get_mut(&first.model.metadata.name) else { return Vec::new() };
        let mates = line.jobs.iter().filter(|(_, job)| first.can_join(job));
        let fitting = mates.map_while(|(&key, job)| {
            rows = rows.checked_sub(job.rows)?;
            Some(key)
        });
        let keys: Vec<_> = fitting.collect();
        self.waiting -= keys.len();
        keys.into_iter().filter_map(|key| line.jobs.remove(&key)).collect()
    }
}

/// What goes first whatever the shares are: the stand-ins of late queries; and last: spare work, of which nobody is sure
/// that it will be needed.
fn urgency(priority: u8) -> u8 {
    match priority {
        1 => 0,
        2..=254 => 1,
        _ => 2,
    }
}

/// Counts it, and tells a client that still waits that its deadline passed.
fn drop_useless(job: Job) {
    job.model.statistics.metrics().dropped.inc();
    let waited = job.arrived.elapsed();
    job.answer(Err(Error::DeadlineExceeded { waited }));
}
