//! The bounded queue between requests and instances.
//!
//! Ordered by priority, then by arrival. Jobs that nobody waits for any more are never handed to a thread, and never
//! stand in the way of one that somebody waits for: before a full queue refuses a job, it is cleared of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use parm_protocol::Error;
use tokio::sync::Notify;

use super::Job;

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
    jobs: BTreeMap<(u8, u64), Job>,
    next: u64,
    /// Threads at work.
    busy: usize,
    open: bool,
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State { jobs: BTreeMap::new(), next: 0, busy: 0, open: true };
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
        if state.jobs.len() >= self.capacity {
            state.clear_useless();
        }
        if state.jobs.len() >= self.capacity {
            let message = format!("{} requests wait already: try later, or add instances", self.capacity);
            return Err(Error::Overloaded { message, retry_after: RETRY_AFTER });
        }
        let key = (job.priority, state.next);
        state.next += 1;
        state.jobs.insert(key, job);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// The next job, once there is one; `None` once the queue is closed and empty. The caller counts as busy until it
    /// calls [`done`](Self::done).
    pub(crate) fn take(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            while let Some((_, job)) = state.jobs.pop_first() {
                if !job.is_useless(Instant::now()) {
                    state.busy += 1;
                    return Some(job);
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

    /// A thread that took a job has answered it.
    pub(crate) fn done(&self) {
        let mut state = self.state.lock();
        state.busy -= 1;
        if state.busy == 0 && state.jobs.is_empty() {
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
            if !state.jobs.is_empty() {
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
                if state.busy == 0 && state.jobs.is_empty() {
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
    fn clear_useless(&mut self) {
        let now = Instant::now();
        let useless: Vec<_> =
            self.jobs.iter().filter(|(_, job)| job.is_useless(now)).map(|(&key, _)| key).collect();
        for key in useless {
            if let Some(job) = self.jobs.remove(&key) {
                drop_useless(job);
            }
        }
    }

    /// In order, up to the first that does not fit: a large job is not overtaken for ever by small ones.
    fn extract_mates(&mut self, first: &Job, mut rows: usize) -> Vec<Job> {
        let mates = self.jobs.iter().filter(|(_, job)| first.can_join(job));
        let fitting = mates.map_while(|(&key, job)| {
            rows = rows.checked_sub(job.rows)?;
            Some(key)
        });
        let keys: Vec<_> = fitting.collect();
        keys.into_iter().filter_map(|key| self.jobs.remove(&key)).collect()
    }
}

/// Counts it, and tells a client that still waits that its deadline passed.
fn drop_useless(job: Job) {
    job.model.statistics.metrics().dropped.inc();
    let waited = job.arrived.elapsed();
    job.answer(Err(Error::DeadlineExceeded { waited }));
}
