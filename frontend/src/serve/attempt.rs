//! One attempt: a run of a model at an instance, sent, awaited, and cancelled if no client waits.
//!
//! A run whose queries were answered otherwise is still awaited: its instance is busy with it, more work would only
//! queue behind it, and its duration tells a slow instance from a dead one. A run whose clients went away is cancelled
//! at the instance. Its slot is freed once the instance has settled: a server when it answers a request, a thread of
//! this process when it is done. That time counts against the instance.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use parm_dispatcher::{Failure, InstanceKey, JobKey, Time, Why};
use parm_protocol::client::CallContext;
use parm_protocol::fleet::ROWS;
use parm_protocol::{
    Code, Error, InferRequest, InferResponse, ModelRef, OpaqueAnswer, OpaqueRequest, Parameters,
    RequestedOutput,
};
use slotmap::Key;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument;

use super::call::{Output, QueryRow};
use super::coded::Parity;
use super::coding::StandIn;
use super::driver::Driver;
use super::inputs::{self, JobRows, Row};
use super::instance::Instance;
use super::outputs::{Expected, OUTCOME, Outputs};
use super::pool::Pool;
use super::terms::ACCEPT;
use super::{agreement, forward, trace};
use crate::console::At;

/// What a run is for, as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The deployed model, for a query that has no other run.
    Deployed,
    /// A copy of such a run.
    Copy,
    /// A parity of a coding group.
    Parity,
    /// The backup model.
    Backup,
    /// The stand-in.
    StandIn,
}

/// What the dispatcher runs a model on.
#[derive(Clone)]
pub(super) enum Payload {
    /// A row of a request.
    Row(QueryRow),
    /// The same, only to compare its model with its stand-in.
    Check(QueryRow),
    /// A parity of a coding group.
    Parity(Arc<Parity>),
}

/// The request of an attempt.
enum Ask {
    Predict(InferRequest),
    Forward(Arc<OpaqueRequest>),
}

/// A request with the outputs that it names.
type Prepared = (Ask, Vec<RequestedOutput>);

/// The answer to it.
enum Heard {
    Predicted(InferResponse),
    Opaque(OpaqueAnswer),
}

/// A run of a model at an instance.
pub(super) struct Job {
    pub(super) key: JobKey,
    pub(super) role: Role,
    pub(super) why: Why,
    pub(super) at: InstanceKey,
    pub(super) instance: Arc<Instance>,
    pub(super) pool: Arc<Pool>,
    /// The model that runs.
    pub(super) model: Arc<ModelRef>,
    /// The stand-in that it runs or is compared with.
    pub(super) stand_in: Option<Arc<StandIn>>,
    pub(super) rows: SmallVec<[parm_dispatcher::Row<Payload>; 1]>,
    pub(super) started: Time,
    pub(super) stop: Stop,
}

/// A run about to start.
pub(super) struct Attempt {
    pub(super) job: Arc<Job>,
    /// The share that it is charged to, if not its model's own.
    pub(super) share: Option<Arc<str>>,
    /// Time at which the instance has held it for too long.
    pub(super) deadline: Instant,
}

/// Tells a run that it is not needed; the first reason counts.
#[derive(Default)]
pub(super) struct Stop {
    because: OnceLock<Unneeded>,
    told: Notify,
}

/// Why a run is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unneeded {
    /// Its queries were answered: do not start it; once started let it end, as its instance is busy anyway.
    Unwanted,
    /// Its queries were cancelled, because their clients went away or nothing needs them any more: cancel it at the instance.
    Cancelled,
    /// Its instance left, and nobody hears its end.
    Left,
}

/// How an attempt ended.
pub(super) enum Ending {
    /// An output for each row, `None` where it cannot be used.
    Completed(SmallVec<[Option<Output>; 1]>),
    Failed(Failure, Error),
    /// Cancelled or never sent.
    GivenUp,
}

/// Reports an attempt as given up unless it ended otherwise, even if its task is dropped.
struct Report {
    driver: Arc<Driver>,
    job: JobKey,
    ending: Ending,
}

/// Starts an attempt.
pub(super) fn launch(driver: &Arc<Driver>, attempt: Attempt) {
    let report = Report { driver: driver.clone(), job: attempt.job.key, ending: Ending::GivenUp };
    let span = trace::job(&attempt.job);
    let run = async move {
        let mut attempt = attempt;
        let ending = attempt.run(&report.driver).await;
        let driver = report.driver.clone();
        // Afterwards, because a client may wait for the answer.
        let pairs = agreement::pairs(&attempt.job, &ending);
        report.end(ending);
        agreement::compare(&driver, &attempt.job, pairs);
    };
    if span.is_disabled() {
        driver.runtime.spawn(run);
    } else {
        driver.runtime.spawn(run.instrument(span));
    }
}

impl Stop {
    pub(super) fn tell(&self, why: Unneeded) {
        if self.because.set(why).is_ok() {
            self.told.notify_one();
        }
    }

    pub(super) fn is_told(&self) -> bool {
        self.because.get().is_some()
    }

    /// Waits until its run is to end without its answer.
    async fn cancels(&self) -> Unneeded {
        self.told.notified().await;
        match self.because.get() {
            Some(why @ (Unneeded::Cancelled | Unneeded::Left)) => *why,
            _ => std::future::pending().await,
        }
    }
}

impl Report {
    fn end(mut self, ending: Ending) {
        self.ending = ending;
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let ending = std::mem::replace(&mut self.ending, Ending::GivenUp);
        self.driver.with(|state| state.finish(&self.driver, self.job, ending));
    }
}

impl Payload {
    /// Its row, if it is one.
    pub(super) fn row(&self) -> Option<&QueryRow> {
        match self {
            Self::Row(row) | Self::Check(row) => Some(row),
            Self::Parity(_) => None,
        }
    }
}

impl Attempt {
    /// Its request, unless that is no longer wanted or cannot be sent.
    fn prepare(&mut self) -> Result<Prepared, Ending> {
        if self.job.stop.is_told() {
            return Err(Ending::GivenUp);
        }
        let rows = self.job.inputs();
        let prepared = self.job.asks(&rows).map_err(|error| Ending::Failed(Failure::Query, error))?;
        if self.job.is_too_long() {
            let message = "its client has sent too much for another attempt".into();
            return Err(Ending::Failed(Failure::Withheld, Error::Unavailable { message }));
        }
        Ok(prepared)
    }

    async fn run(&mut self, driver: &Arc<Driver>) -> Ending {
        let job = self.job.clone();
        let (request, wanted) = match self.prepare() {
            Ok(prepared) => prepared,
            Err(ending) => {
                job.instance.not_sent();
                return ending;
            }
        };
        let context = CallContext {
            deadline: Some(self.deadline),
            // Makes the instance's spans children of this one.
            traceparent: parm_transport::trace::traceparent(&tracing::Span::current()),
            share: self.share.take(),
            once: job.pool.is_once(),
        };
        let client = &job.instance.client;
        let answer = async {
            match request {
                Ask::Predict(request) => client.infer(request, context).await.map(Heard::Predicted),
                Ask::Forward(request) => client.forward(request, context).await.map(Heard::Opaque),
            }
        };
        let why = tokio::select! {
            biased;
            answer = answer => return job.settle(driver, answer, &wanted),
            why = job.stop.cancels() => why,
        };
        if why == Unneeded::Cancelled {
            // At most until its deadline, but long enough for an answer.
            let least = Instant::now() + driver.limits.health_timeout;
            let longest = least.max(self.deadline);
            let _ = timeout_at(longest, client.settled()).await;
        }
        Ending::GivenUp
    }
}

impl Job {
    /// Its place in the stories of its queries.
    pub(super) fn place(&self) -> At {
        At { instance: self.instance.number, job: self.key.data().as_ffi() }
    }

    /// Whether the deployed model runs.
    pub(super) fn predicts(&self) -> bool {
        matches!(self.role, Role::Deployed | Role::Copy)
    }

    pub(super) fn payloads(&self) -> impl Iterator<Item = &Payload> {
        self.rows.iter().map(|row| &row.payload)
    }

    /// Its parity, if it runs one.
    fn parity(&self) -> Option<&Arc<Parity>> {
        match self.payloads().next()? {
            Payload::Parity(parity) => Some(parity),
            _ => None,
        }
    }

    /// Its rows of requests.
    fn inputs(&self) -> JobRows {
        self.payloads().filter_map(Payload::row).map(QueryRow::row).collect()
    }

    fn opaque(&self) -> Option<&Arc<OpaqueRequest>> {
        self.payloads().next()?.row()?.call.inputs.opaque.as_ref()
    }

    /// Whether its client has sent too much for a server that gets the request from now on.
    fn is_too_long(&self) -> bool {
        self.opaque().and_then(|request| request.stream.as_ref()).is_some_and(|stream| !stream.is_copied())
    }

    /// The request, and the outputs that it names.
    fn asks(&self, rows: &[Row]) -> Result<Prepared, Error> {
        if let Some(request) = self.opaque() {
            return Ok((Ask::Forward(request.clone()), Vec::new()));
        }
        let request = self.ranked(self.request(rows)?);
        let wanted = request.outputs.clone();
        Ok((Ask::Predict(request), wanted))
    }

    fn request(&self, rows: &[Row]) -> Result<InferRequest, Error> {
        if let Some(parity) = self.parity() {
            return Ok(InferRequest {
                model: (*self.model).clone(),
                id: String::new(),
                parameters: Parameters::new(),
                inputs: parity.inputs.clone(),
                outputs: Vec::new(),
            });
        }
        let mut request = inputs::request(&self.model, rows)?;
        let is_ours = self.instance.states_files.load(Ordering::Relaxed);
        // Our workers reject it if the model has changed and its rows now depend on each other.
        if self.pool.batched && is_ours && !inputs::is_whole(rows) {
            request.parameters.insert(ROWS.into(), true.into());
        }
        let plain = request.outputs.iter().all(|output| output.parameters.is_empty());
        if self.predicts() && plain && self.pool.coded.load(Ordering::Relaxed) {
            // Another member may need an output for its reconstruction that this client did not request.
            // Queries that request outputs in another form are not grouped.
            request.outputs.clear();
        }
        Ok(request)
    }

    /// Adds the rank of the request among those of other frontends, which meet only in the queue of a worker: in Triton's
    /// numbers 1 is the most urgent. Asks another frontend for predictions.
    fn ranked(&self, mut request: InferRequest) -> InferRequest {
        let is_check = matches!(self.payloads().next(), Some(Payload::Check(_)));
        let priority = match self.why {
            _ if is_check || matches!(self.why, Why::Explore) => Some(255u64),
            Why::StandIn => Some(1),
            Why::Retry | Why::Hedge if self.instance.is_shared() => Some(1),
            _ => None,
        };
        if let Some(priority) = priority {
            request.parameters.insert("priority".into(), priority.into());
        }
        if self.instance.approximates.load(Ordering::Relaxed) {
            request.parameters.insert(ACCEPT.into(), "exact".into());
        }
        request
    }

    /// An answer that counts as a failure of the instance if that cuts it.
    fn watched(&self, driver: &Arc<Driver>, answer: OpaqueAnswer) -> OpaqueAnswer {
        let (driver, instance) = (driver.clone(), self.instance.clone());
        let model = self.model.name.clone();
        forward::watch(answer, move |error| {
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
        answer: Result<Heard, Error>,
        wanted: &[RequestedOutput],
    ) -> Ending {
        let expected = Expected {
            instance: &self.instance.name,
            model: &self.pool.metadata,
            wanted,
            batched: self.pool.batched,
            rows: self.rows.len(),
        };
        let outputs = answer.and_then(|heard| match heard {
            Heard::Predicted(response) => {
                if response.parameters.contains_key(OUTCOME) {
                    self.instance.approximates.store(true, Ordering::Relaxed);
                }
                Outputs::check(response, &expected)
            }
            Heard::Opaque(answer) => Ok(Outputs::opaque(self.watched(driver, answer))),
        });
        match outputs {
            Ok(outputs) => self.completed(outputs),
            Err(error) => {
                let failure = match failure(&error) {
                    // The client, not the instance, is the reason why it did not get all of it.
                    Failure::Unsent if self.is_too_long() => return Ending::Failed(Failure::Withheld, error),
                    failure => failure,
                };
                if failure != Failure::Query {
                    self.instance.failed(&self.model.name, &error);
                    tracing::debug!(instance = %self.instance.name, %error, "instance failed a job");
                }
                Ending::Failed(failure, error)
            }
        }
    }

    /// The outputs of its rows. A stand-in's are judged, and those that a client may not get are left out.
    fn completed(&self, outputs: Outputs) -> Ending {
        let outputs = Arc::new(outputs);
        if self.role == Role::Deployed
            && self.pool.sample.get().is_none()
            && let Some(sample) = self.inputs().first().and_then(Row::sample)
        {
            // Another job may have set it first.
            let _ = self.pool.sample.set(Arc::new(sample));
        }
        let output = |row: usize, confidence| Output {
            by: Some((self.instance.number, self.at)),
            confidence,
            parity: self.parity().cloned(),
            ..Output::of(outputs.clone(), row)
        };
        let stand_in = self.stand_in.as_ref().filter(|_| self.role == Role::StandIn);
        let of_row = |(row, payload): (usize, &Payload)| match (stand_in, payload.row()) {
            (Some(stand_in), Some(of)) => {
                let confidence = stand_in.judge(&self.pool, &outputs, row, &of.call.inputs.outputs)?;
                Some(output(row, confidence))
            }
            _ => Some(output(row, None)),
        };
        Ending::Completed(self.payloads().enumerate().map(of_row).collect())
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

/// Probes an instance that is out of service, where no copy of a query may try it, and tells the driver the result.
///
/// A positive health check proves little: a stalled model thread may be behind a responsive HTTP server. A probe
/// therefore also runs inputs that were answered before, if there are any, and discards the result.
pub(super) fn probe(driver: &Arc<Driver>, key: InstanceKey, instance: Arc<Instance>) {
    let driver = driver.clone();
    driver.runtime.clone().spawn(async move {
        let answer = timeout(driver.limits.health_timeout, works(&driver, &instance)).await;
        let works = matches!(answer, Ok(Ok(true)));
        tracing::debug!(instance = %instance.name, works, "probed an instance");
        if works {
            driver.with(|state| state.react(&driver, |state, now| state.dispatcher.probed(now, key)));
        }
    });
}

async fn works(driver: &Driver, instance: &Instance) -> Result<bool, Error> {
    if !instance.client.is_ready().await? {
        return Ok(false);
    }
    for pool in instance.pools() {
        // Where each query is sent once, a client's must not run again.
        let Some(sample) = pool.sample.get().filter(|_| !pool.is_once()) else { continue };
        let request = inputs::request(&pool.model, &[Row { inputs: sample.clone(), index: 0 }])?;
        let deadline = Some(tokio::time::Instant::now() + driver.limits.health_timeout);
        instance.client.infer(request, CallContext { deadline, ..CallContext::default() }).await?;
    }
    Ok(true)
}
