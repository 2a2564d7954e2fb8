//! Instances and the bounded queues that feed them.
//!
//! An instance is a thread that runs batches. A request changes threads twice:
//! into the queue, which wakes a thread, and back through a one-shot channel. Short runs use the reading thread instead
//! ([`Seats`]). Several threads may take from one queue (a worker's instances) or each from its own (instances that our
//! dispatcher addresses individually).

mod queue;
mod seats;

use std::sync::Arc;

use parm_protocol::fleet::Frontend;
use parm_protocol::{Error as Refusal, Tensor};
use prometheus::IntGauge;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::engine::joined;
use crate::host::Loaded;
use crate::metrics::Phases;
use crate::{Error, Faults, pause};

pub(crate) use queue::{Grants, Payer, Queue};
pub(crate) use seats::Seats;

use queue::Ticket;

/// A validated request and the channel for its answer.
pub(crate) struct Job {
    pub(crate) model: Arc<Loaded>,
    pub(crate) payer: Payer,
    /// In the model's order.
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) rows: usize,
    /// 1 is first, 255 last.
    pub(crate) priority: u8,
    pub(crate) arrived: Instant,
    pub(crate) deadline: Instant,
    /// The frontend that sent it, if that needs grants.
    pub(crate) frontend: Option<Frontend>,
    /// Where its answer goes. A job whose receiver is dropped is cancelled.
    pub(crate) reply: oneshot::Sender<Result<Vec<Tensor>, Refusal>>,
    pub(crate) pending: Option<Pending>,
}

/// Counts a job as pending while it waits.
pub(crate) struct Pending(IntGauge);

impl Pending {
    pub(crate) fn of(model: &Loaded) -> Self {
        let gauge = model.statistics.pending.clone();
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl AsRef<[Tensor]> for Job {
    fn as_ref(&self) -> &[Tensor] {
        &self.inputs
    }
}

impl Job {
    /// Whether the job is cancelled or its deadline has passed.
    fn is_useless(&self, now: Instant) -> bool {
        self.reply.is_closed() || self.deadline <= now
    }

    /// Whether both can share a batch.
    fn can_join(&self, other: &Job) -> bool {
        let same_row = |(a, b): (&Tensor, &Tensor)| a.shape().get(1..) == b.shape().get(1..);
        Arc::ptr_eq(&self.model, &other.model) && self.inputs.iter().zip(&other.inputs).all(same_row)
    }

    /// Sends the answer.
    fn answer(self, answer: Result<Vec<Tensor>, Refusal>) {
        // A cancelled job needs no answer.
        let _ = self.reply.send(answer);
    }
}

/// The context of an instance.
#[derive(Clone)]
pub(crate) struct Setup {
    /// Its number, which is the index of its replicas.
    pub(crate) number: usize,
    pub(crate) queue: Arc<Queue>,
    pub(crate) faults: Option<Arc<Faults>>,
}

impl Setup {
    /// Starts the thread of the instance, which ends once its queue is closed and empty.
    pub(crate) fn start(self) -> Result<(), Error> {
        let name = format!("instance-{}", self.number);
        let thread = std::thread::Builder::new().name(name).spawn(move || self.serve());
        thread.map(drop).map_err(|error| Error::Thread { message: error.to_string() })
    }

    /// Runs a job, for which an instance was taken, on this thread.
    pub(crate) fn end(&self, mut job: Job, mut ticket: Ticket) {
        job.pending = None;
        let began = Instant::now();
        self.run(vec![job], &mut ticket);
        self.queue.done_at_once(ticket, began.elapsed());
    }

    fn serve(self) {
        pause::make_precise();
        while let Some((first, mut ticket)) = self.queue.take() {
            let mut jobs = self.gather(first);
            jobs.iter_mut().for_each(|job| job.pending = None);
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
        let mates = self.queue.take_mates(&first, room);
        [first].into_iter().chain(mates).collect()
    }

    fn run(&self, jobs: Vec<Job>, ticket: &mut Ticket) {
        let started = Instant::now();
        match self.execute(&jobs) {
            Ok((parts, phases)) => {
                // Before the answer, so that a grant can be sent with it.
                if jobs.len() == 1 {
                    self.queue.hand_on(ticket);
                }
                for (job, outputs) in jobs.into_iter().zip(parts) {
                    job.model.statistics.answered(job.arrived.elapsed(), started - job.arrived, phases);
                    job.answer(Ok(outputs));
                }
            }
            // A request that breaks the model must not fail the others in its batch.
            Err(error) if jobs.len() > 1 => {
                tracing::debug!(%error, "a batch failed: running its requests one by one");
                jobs.into_iter().for_each(|job| self.run(vec![job], ticket));
            }
            Err(error) => jobs.into_iter().for_each(|job| job.answer(Err(error.clone()))),
        }
    }

    fn execute(&self, jobs: &[Job]) -> Result<(Vec<Vec<Tensor>>, Phases), Refusal> {
        let began = Instant::now();
        let model = &jobs[0].model;
        let rows: Vec<usize> = jobs.iter().map(|job| job.rows).collect();
        // The inputs of a single job are passed on without a copy.
        let inputs = joined(jobs)?;
        let stacked = Instant::now();
        let run = || model.run(self.number, &inputs);
        let outputs =
            self.faults.as_ref().map_or_else(run, |faults| faults.around(self.number, &inputs, run));
        let outputs = outputs.inspect_err(|error| {
            if let Error::Panicked { .. } = error {
                model.statistics.panics.inc();
            }
        })?;
        let ran = Instant::now();
        let parts = if jobs.len() == 1 { vec![outputs] } else { split(&outputs, &rows)? };
        let phases = Phases { input: stacked - began, infer: ran - stacked, output: ran.elapsed() };
        model.statistics.executed(rows.iter().sum(), phases);
        Ok((parts, phases))
    }
}

/// Each job's rows of the outputs. An error if the number of rows differs from that of the inputs: the model's first
/// dimension is then not a batch.
fn split(outputs: &[Tensor], rows: &[usize]) -> Result<Vec<Vec<Tensor>>, Refusal> {
    let total: usize = rows.iter().sum();
    if let Some(odd) = outputs.iter().find(|output| output.rows() != total) {
        return Err(Refusal::RowsOutOfRange { start: 0, count: total, rows: odd.rows() });
    }
    let mut start = 0;
    let part = |&count: &usize| {
        let part = outputs.iter().map(|output| output.slice_rows(start, count)).collect();
        start += count;
        part
    };
    rows.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_split_in_the_order_of_the_jobs() {
        let output = Tensor::from_f32([3, 1].as_slice(), &[1., 2., 3.]).unwrap();
        let parts = split(std::slice::from_ref(&output), &[2, 1]).unwrap();
        assert_eq!(parts, [[output.slice_rows(0, 2).unwrap()], [output.slice_rows(2, 1).unwrap()]]);
        let error = Refusal::RowsOutOfRange { start: 0, count: 4, rows: 3 };
        assert_eq!(split(&[output], &[2, 2]), Err(error));
    }
}
