//! One request on its way through an instance.

use std::sync::Arc;

use parm_protocol::fleet::Frontend;
use parm_protocol::{Error, Tensor};
use prometheus::IntGauge;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::host::Loaded;
use crate::payer::Payer;

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
    reply: oneshot::Sender<Result<Vec<Tensor>, Error>>,
    pending: Option<Pending>,
}

/// The parts of a job, before it has a channel for its answer.
pub(crate) struct Order {
    pub(crate) model: Arc<Loaded>,
    pub(crate) payer: Payer,
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) rows: usize,
    pub(crate) priority: u8,
    pub(crate) arrived: Instant,
    pub(crate) deadline: Instant,
    pub(crate) frontend: Option<Frontend>,
}

/// Counts a job as pending while it waits.
struct Pending(IntGauge);

impl Job {
    /// The job and the receiver of its answer. Dropping the receiver cancels the job.
    pub(crate) fn new(order: Order) -> (Self, oneshot::Receiver<Result<Vec<Tensor>, Error>>) {
        let Order { model, payer, inputs, rows, priority, arrived, deadline, frontend } = order;
        let (reply, answer) = oneshot::channel();
        let gauge = model.statistics.metrics().pending.clone();
        gauge.inc();
        let pending = Some(Pending(gauge));
        let job = Self { model, payer, inputs, rows, priority, arrived, deadline, frontend, reply, pending };
        (job, answer)
    }

    /// Whether the job is cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.reply.is_closed()
    }

    /// Whether the job is cancelled or its deadline has passed.
    pub(crate) fn is_useless(&self, now: Instant) -> bool {
        self.is_cancelled() || self.deadline <= now
    }

    /// Whether both can share a batch.
    pub(crate) fn can_join(&self, other: &Job) -> bool {
        let same_row = |(a, b): (&Tensor, &Tensor)| a.shape().get(1..) == b.shape().get(1..);
        Arc::ptr_eq(&self.model, &other.model) && self.inputs.iter().zip(&other.inputs).all(same_row)
    }

    /// Marks the start of its run: it no longer waits.
    pub(crate) fn begin(&mut self) {
        self.pending = None;
    }

    /// Sends the answer.
    pub(crate) fn answer(self, answer: Result<Vec<Tensor>, Error>) {
        // A cancelled job needs no answer.
        let _ = self.reply.send(answer);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.dec();
    }
}
