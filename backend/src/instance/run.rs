//! The loop of an instance's thread: take a job, run it, answer.

use std::sync::Arc;

use parm_protocol::Tensor;
use tokio::time::Instant;

use super::state::Ticket;
use super::{Job, Queue, batch};
use crate::host::Loaded;
use crate::statistics::Phases;
use crate::{Batching, Error, Faults, pause};

/// A running instance. Its thread ends once its queue is closed and empty.
///
/// Dropping it closes the queue and does not wait: a hung model must not keep the process from ending.
pub(crate) struct Instance {
    queue: Arc<Queue>,
}

/// The context of an instance.
#[derive(Clone)]
pub(crate) struct Setup {
    /// Its number, which is the index of its replicas.
    pub(crate) number: usize,
    pub(crate) queue: Arc<Queue>,
    pub(crate) batching: Batching,
    pub(crate) faults: Option<Arc<Faults>>,
}

impl Instance {
    /// Starts the thread.
    pub(crate) fn start(setup: Setup) -> Result<Self, Error> {
        let queue = setup.queue.clone();
        let name = format!("instance-{}", setup.number);
        let thread = std::thread::Builder::new().name(name).spawn(move || setup.serve());
        thread.map_err(|error| Error::Thread { message: error.to_string() })?;
        Ok(Self { queue })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Setup {
    /// Takes an instance for a job, if one is free and no other work precedes it.
    pub(crate) fn begin(&self, job: &Job) -> Option<Ticket> {
        self.queue.begin(job)
    }

    /// Runs a job, for which an instance was taken, on this thread.
    pub(crate) fn end(&self, mut job: Job, mut ticket: Ticket) {
        job.begin();
        let began = Instant::now();
        self.run(vec![job], &mut ticket);
        self.queue.done_at_once(ticket, began.elapsed());
    }

    fn serve(self) {
        pause::make_precise();
        while let Some((first, mut ticket)) = self.queue.take() {
            let mut jobs = self.gather(first);
            jobs.iter_mut().for_each(Job::begin);
            let began = Instant::now();
            self.run(jobs, &mut ticket);
            self.queue.done(ticket, began.elapsed());
        }
    }

    /// The batch that starts with this job.
    fn gather(&self, first: Job) -> Vec<Job> {
        let room = first.model.batch_limit.saturating_sub(first.rows);
        if room == 0 {
            return vec![first];
        }
        let until = first.arrived + self.batching.max_delay;
        let mates = self.queue.take_mates(&first, room, until);
        [first].into_iter().chain(mates).collect()
    }

    fn run(&self, jobs: Vec<Job>, ticket: &mut Ticket) {
        let started = Instant::now();
        match self.execute(&jobs) {
            Ok((parts, phases)) => self.answer(jobs, parts, (started, phases), ticket),
            // A request that breaks the model must not fail the others in its batch.
            Err(error) if jobs.len() > 1 => {
                tracing::debug!(%error, "a batch failed: running its requests one by one");
                jobs.into_iter().for_each(|job| self.run(vec![job], ticket));
            }
            Err(error) => jobs.into_iter().for_each(|job| job.answer(Err(error.clone()))),
        }
    }

    fn answer(
        &self,
        jobs: Vec<Job>,
        parts: Vec<Vec<Tensor>>,
        (started, phases): (Instant, Phases),
        ticket: &mut Ticket,
    ) {
        // Before the answer, so that a grant can be sent with it.
        if jobs.len() == 1 {
            self.queue.hand_on(ticket);
        }
        for (job, outputs) in jobs.into_iter().zip(parts) {
            let statistics = &job.model.statistics;
            statistics.answered(job.arrived.elapsed(), started - job.arrived, phases);
            job.answer(Ok(outputs));
        }
    }

    fn execute(&self, jobs: &[Job]) -> Result<(Vec<Vec<Tensor>>, Phases), parm_protocol::Error> {
        let began = Instant::now();
        let model = &jobs[0].model;
        let rows: Vec<usize> = jobs.iter().map(|job| job.rows).collect();
        let inputs = batch::stack(jobs)?;
        let stacked = Instant::now();
        let run = || model.run(self.number, &inputs);
        let outputs =
            self.faults.as_ref().map_or_else(run, |faults| faults.around(self.number, &inputs, run));
        let outputs = outputs.inspect_err(|error| note_panic(model, error))?;
        let ran = Instant::now();
        let parts = if jobs.len() == 1 { vec![outputs] } else { batch::split(&outputs, &rows)? };
        let phases = Phases { input: stacked - began, infer: ran - stacked, output: ran.elapsed() };
        model.statistics.executed(rows.iter().sum(), phases);
        Ok((parts, phases))
    }
}

fn note_panic(model: &Loaded, error: &Error) {
    if let Error::Panicked { .. } = error {
        model.statistics.metrics().panics.inc();
    }
}
