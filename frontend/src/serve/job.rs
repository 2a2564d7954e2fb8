//! One job at one instance: sent, awaited, and cancelled if no client waits.
//!
//! A job whose queries were answered otherwise is still awaited: its instance is busy with it, more work would only
//! queue behind it, and its duration tells a slow instance from a dead one. A job whose clients went away is cancelled
//! at the instance. Its slot is freed once the instance has settled: a server when it answers a request, a thread of
//! this process when it is done. That time counts against the instance.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parm_dispatch::{Failure, JobId, Role, Urgency};
use parm_protocol::client::{BoxFuture, CallContext};
use parm_protocol::fleet::ROWS;
use parm_protocol::{
    Code, Error, InferRequest, InferResponse, ModelRef, OpaqueAnswer, OpaqueRequest, PADDED, Parameters,
    RequestedOutput,
};
use parm_tokens::{Class, Order, Token};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::coding::ParityQuery;
use super::driver::Driver;
use super::endings;
use super::inputs::{self, JobRows, Row};
use super::instance::Instance;
use super::ledger::Stop;
use super::lengths::Lengths;
use super::outcome::OUTCOME;
use super::outputs::{Expected, Outputs};
use super::pool::Pool;
use super::terms::ACCEPT;
use super::trace;

/// Work of a job.
pub(super) enum Task {
    /// The deployed model on these queries.
    Deployed(JobRows),
    /// The backup model on these queries.
    Backup(ModelRef, JobRows),
    /// The stand-in on these queries.
    StandIn(ModelRef, Urgency, JobRows),
    /// A parity model, or the deployed one, on the parity query of a group.
    Parity(Option<ModelRef>, ParityQuery),
}

/// The request of a job.
enum Ask {
    Predict(InferRequest),
    Forward(Arc<OpaqueRequest>),
}

/// The answer to a job.
enum JobAnswer {
    Predicted(InferResponse),
    Opaque(OpaqueAnswer),
}

/// A job about to start.
pub(super) struct Launch {
    pub(super) job: JobId,
    pub(super) role: Role,
    pub(super) class: Class,
    /// Token of the instance that it uses.
    pub(super) token: Option<Token>,
    /// Share that it is charged to, if not its model's own.
    pub(super) share: Option<Arc<str>>,
    pub(super) instance: Arc<Instance>,
    pub(super) pool: Arc<Pool>,
    pub(super) task: Task,
    /// The lengths of its rows, if they are padded.
    pub(super) lengths: Option<Arc<Lengths>>,
    /// Time at which the instance has held it for too long.
    pub(super) deadline: Instant,
    pub(super) stopped: oneshot::Receiver<Stop>,
}

/// Result of a job.
pub(super) enum Ending {
    Completed(Outputs),
    Failed(Failure, Error),
    /// Cancelled, as no client waits.
    GivenUp,
}

/// Reports a job as given up unless it ended otherwise, even if its task is dropped.
struct Report {
    driver: Arc<Driver>,
    job: JobId,
    ending: Ending,
}

/// Starts a job.
pub(super) fn launch(driver: &Arc<Driver>, launch: Launch) {
    let report = Report { driver: driver.clone(), job: launch.job, ending: Ending::GivenUp };
    let span = trace::job(&launch);
    let run = async move {
        let ending = launch.run(&report.driver).await;
        report.end(ending);
    };
    if span.is_disabled() {
        driver.runtime.spawn(run);
    } else {
        driver.runtime.spawn(run.instrument(span));
    }
}

impl Report {
    fn end(mut self, ending: Ending) {
        self.ending = ending;
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.driver.finished(self.job, std::mem::replace(&mut self.ending, Ending::GivenUp));
    }
}

impl Drop for Launch {
    /// Returns the token of a job that was not sent.
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            self.instance.client.tell(Order::GiveBack(token));
        }
    }
}

impl Launch {
    async fn run(mut self, driver: &Arc<Driver>) -> Ending {
        self.lengths = match &self.task {
            // Other models may not take padded rows.
            Task::Deployed(rows) => Lengths::of(&self.pool, rows),
            _ => None,
        };
        if !matches!(self.stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            return Ending::GivenUp;
        }
        let (request, wanted) = match self.asks() {
            Ok(asks) => asks,
            Err(error) => return Ending::Failed(Failure::Query, error),
        };
        if self.is_too_long() {
            let message = "its client has sent too much for another attempt".into();
            return Ending::Failed(Failure::Withheld, Error::Unavailable { message });
        }
        let context = CallContext {
            deadline: Some(self.deadline),
            traceparent: trace::header(&tracing::Span::current()),
            token: self.token.take(),
            share: self.share.take(),
            once: self.pool.is_once(),
        };
        let client = &self.instance.client;
        let mut call: BoxFuture<'_, _> = match request {
            Ask::Predict(request) => {
                let answer = client.infer(request, context);
                Box::pin(async { answer.await.map(JobAnswer::Predicted) })
            }
            Ask::Forward(request) => {
                let answer = client.forward(request, context);
                Box::pin(async { answer.await.map(JobAnswer::Opaque) })
            }
        };
        let stop = tokio::select! {
            biased;
            answer = &mut call => return self.settle(driver, answer, &wanted),
            stop = &mut self.stopped => stop,
        };
        match stop {
            Ok(Stop::Unwanted) => {
                let answer = call.await;
                self.settle(driver, answer, &wanted)
            }
            Ok(Stop::Cancelled) => {
                drop(call);
                // At most until the job's deadline, but long enough for an answer.
                let least = Instant::now() + driver.limits.health_timeout;
                let longest = least.max(self.deadline);
                let _ = timeout_at(longest, self.instance.client.settled()).await;
                Ending::GivenUp
            }
            // The instance left.
            Err(_) => Ending::GivenUp,
        }
    }

    /// Whether its client has sent too much for a server that gets the request from now on.
    fn is_too_long(&self) -> bool {
        let opaque = self.task.queries().first().and_then(|row| row.inputs.opaque.as_ref());
        opaque.and_then(|request| request.stream.as_ref()).is_some_and(|stream| !stream.is_copied())
    }

    /// The request, and the outputs that it names.
    fn asks(&self) -> Result<(Ask, Vec<RequestedOutput>), Error> {
        let opaque = self.task.queries().first().and_then(|row| row.inputs.opaque.clone());
        if let Some(request) = opaque {
            return Ok((Ask::Forward(request), Vec::new()));
        }
        let request = self.ranked(self.request()?);
        let wanted = request.outputs.clone();
        Ok((Ask::Predict(request), wanted))
    }

    fn request(&self) -> Result<InferRequest, Error> {
        let deployed = &self.pool.model;
        match &self.task {
            Task::Deployed(rows) => {
                let mut request = self.of_rows(deployed, rows)?;
                if self.lengths.is_some() && self.instance.states_files() {
                    request.parameters.insert(PADDED.into(), true.into());
                }
                let plain = request.outputs.iter().all(|output| output.parameters.is_empty());
                if plain && self.pool.coded.load(Ordering::Relaxed) {
                    // Another member may need an output for its reconstruction that this client did not request.
                    // Queries that request outputs in another form are not grouped.
                    request.outputs.clear();
                }
                Ok(request)
            }
            Task::Backup(model, rows) => self.of_rows(model, rows),
            Task::StandIn(model, urgency, rows) => {
                let mut request = self.of_rows(model, rows)?;
                request.parameters.insert("priority".into(), priority(*urgency).into());
                Ok(request)
            }
            Task::Parity(model, query) => Ok(InferRequest {
                model: model.as_ref().unwrap_or(deployed).clone(),
                id: String::new(),
                parameters: Parameters::new(),
                inputs: query.inputs.clone(),
                outputs: Vec::new(),
            }),
        }
    }

    /// The request of these rows. Our workers reject it if the model has changed and its rows now depend on each other.
    fn of_rows(&self, model: &ModelRef, rows: &[Row]) -> Result<InferRequest, Error> {
        let longest = self.lengths.as_ref().and_then(|lengths| lengths.longest());
        let mut request = inputs::request(model, rows, longest)?;
        if self.pool.batched && self.instance.states_files() && !inputs::is_whole(rows) {
            request.parameters.insert(ROWS.into(), true.into());
        }
        Ok(request)
    }

    /// Asks another frontend for predictions, and adds the rank of the request among those of other frontends. A server without tokens gets the usual parameters.
    fn ranked(&self, mut request: InferRequest) -> InferRequest {
        let priority = match self.class {
            _ if self.token.is_none() => None,
            Class::Late => Some(1u64),
            Class::Query => None,
            Class::Spare => Some(255),
        };
        if let Some(priority) = priority {
            request.parameters.insert("priority".into(), priority.into());
        }
        if self.instance.approximates() {
            request.parameters.insert(ACCEPT.into(), "exact".into());
        }
        request
    }

    /// An answer that counts as a failure of the instance if that cuts it.
    fn watched(&self, driver: &Arc<Driver>, answer: OpaqueAnswer) -> OpaqueAnswer {
        let (driver, instance) = (driver.clone(), self.instance.clone());
        let model = self.task.model(&self.pool.model).name.clone();
        endings::watch(answer, move |error| {
            let Some(error) = error else { return };
            instance.failed(&model, error);
            if let Some(left_out) = driver.cuts.due(driver.now_ms(), instance.number) {
                let code = parm_protocol::StableCode::Unreachable;
                tracing::warn!(%code, instance = %instance.name, %model, %error, left_out, "an answer ended in its middle");
            }
        })
    }

    fn settle(
        &self,
        driver: &Arc<Driver>,
        answer: Result<JobAnswer, Error>,
        wanted: &[RequestedOutput],
    ) -> Ending {
        let expected = Expected {
            instance: &self.instance.name,
            model: &self.pool.metadata,
            wanted,
            batched: self.pool.batched,
            rows: self.task.rows(),
        };
        let outputs = answer.and_then(|reply| match reply {
            JobAnswer::Predicted(response) => {
                if response.parameters.contains_key(OUTCOME) {
                    self.instance.set_approximates();
                }
                Outputs::check(response, &expected)
                    .map_err(|error| Error::Internal { message: error.to_string() })
            }
            JobAnswer::Opaque(answer) => Ok(Outputs::opaque(self.watched(driver, answer))),
        });
        match outputs {
            Ok(mut outputs) => {
                outputs.lengths = self.lengths.clone();
                if let (Task::Deployed(rows), None) = (&self.task, self.pool.sample.get())
                    && let Some(sample) = rows[0].sample()
                {
                    // Another job may have set it first.
                    let _ = self.pool.sample.set(Arc::new(sample));
                }
                Ending::Completed(outputs)
            }
            Err(error) => {
                let failure = match failure(&error) {
                    // The client, not the instance, is the reason why it did not get all of it.
                    Failure::Unsent if self.is_too_long() => return Ending::Failed(Failure::Withheld, error),
                    failure => failure,
                };
                if failure != Failure::Query {
                    self.instance.failed(&self.task.model(&self.pool.model).name, &error);
                    tracing::debug!(instance = %self.instance.name, %error, "instance failed a job");
                }
                Ending::Failed(failure, error)
            }
        }
    }
}

impl Task {
    /// The model that runs it; `deployed` is the pool's.
    fn model<'a>(&'a self, deployed: &'a ModelRef) -> &'a ModelRef {
        match self {
            Self::Deployed(_) => deployed,
            Self::Backup(model, _) | Self::StandIn(model, ..) => model,
            Self::Parity(model, _) => model.as_ref().unwrap_or(deployed),
        }
    }

    /// Its queries.
    pub(super) fn queries(&self) -> &[Row] {
        match self {
            Self::Deployed(rows) | Self::Backup(_, rows) | Self::StandIn(_, _, rows) => rows,
            Self::Parity(..) => &[],
        }
    }

    /// Rows of its inputs.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Deployed(rows) | Self::Backup(_, rows) | Self::StandIn(_, _, rows) => rows.len(),
            Self::Parity(_, query) => query.rows,
        }
    }
}

/// Priority of a stand-in among queries, which have none, in Triton's numbers: 1 is the most urgent. Frontends that
/// share a worker meet only in its queue.
fn priority(urgency: Urgency) -> u64 {
    match urgency {
        Urgency::Late => 1,
        Urgency::Spare => 255,
    }
}

/// Attributes an error. An instance that does not know the model is at fault, because others do. An internal error may
/// be the fault of either: an index out of range looks like a broken model.
fn failure(error: &Error) -> Failure {
    match error.code() {
        _ if matches!(error, Error::Unsent { .. }) => Failure::Unsent,
        Code::InvalidArgument | Code::TooLarge => Failure::Query,
        Code::Internal => Failure::Model,
        _ => Failure::Instance,
    }
}
