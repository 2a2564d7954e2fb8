//! One gRPC call: its caller, its deadline and its outcome.
//!
//! tonic decodes the message before it calls the service. If decoding fails, tonic responds with its own message and
//! code; this module replaces that response with ours and counts it.

use std::future::{Future, Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use super::single::SingleCodec;
use super::timely::Timely;
use super::{Response, timeout};
use crate::budget::Share;
use crate::keys::{Access, Visit};
use crate::server::auth::Reach;
use crate::server::shared::Shared;
use crate::server::status;
use futures::{Stream, TryFutureExt};
use hyper::body::Incoming;
use parm_protocol::{Error, InferenceService, Transport};
use prost::Message;
use tokio::time::Instant;
use tonic::{Code, Status};

/// Time after the deadline at which a call is cut off if the service has not reported the timeout by then. The client
/// has stopped waiting by its own clock.
const GRACE: Duration = Duration::from_millis(100);

/// Largest message of a call other than a prediction: names, and settings that are ignored.
const LONGEST_QUESTION: usize = 1 << 20;

/// A call that passed access control.
pub(super) struct GrpcCall<'a, S> {
    pub(super) shared: &'a Arc<Shared<S>>,
    request: http::Request<Timely>,
    /// When the head of the request was read.
    pub(super) started: Instant,
    /// When the client stops waiting.
    pub(super) deadline: Option<Instant>,
    /// Counts against the caller's limits until the call ends.
    visit: Visit,
}

impl<'a, S: InferenceService> GrpcCall<'a, S> {
    /// Checks the headers only.
    pub(super) fn begin(
        shared: &'a Arc<Shared<S>>,
        request: http::Request<Incoming>,
        access: Access,
        reach: Reach,
    ) -> Result<Self, Error> {
        let visit = shared.guard.check(request.headers(), access, reach)?;
        if access == Access::Control {
            shared.changed(request.method(), request.uri().path(), &visit);
        }
        let started = Instant::now();
        // A deadline beyond the range of the clock counts as none.
        let deadline = timeout::of(request.headers())?.and_then(|timeout| started.checked_add(timeout));
        let limit = shared.config.body_timeout;
        let request = request.map(|body| Timely::new(body, limit));
        Ok(Self { shared, request, started, deadline, visit })
    }

    pub(super) fn header(&self, name: &'static str) -> Option<&str> {
        self.request.headers().get(name)?.to_str().ok()
    }

    /// The name of the caller's key.
    pub(super) fn key(&self) -> Option<Arc<str>> {
        self.visit.caller().name()
    }

    /// The request, for a service that reads a stream of messages itself. All its bytes count until the stream has
    /// ended, so their number is limited: one call must not use up the byte budget of all clients.
    pub(super) fn into_request(self) -> http::Request<Timely> {
        let share = self.shared.budget.share();
        self.request.map(|body| body.counted_together(share, LONGEST_QUESTION))
    }

    /// Answers one small message with another.
    pub(super) async fn unary<M, R, A>(self, mut answer: impl FnMut(M) -> A + Send) -> Response
    where
        M: Message + Default + 'static,
        R: Message + 'static,
        A: Future<Output = Result<tonic::Response<R>, Error>> + Send,
    {
        let most = self.shared.config.max_body_bytes.get().min(LONGEST_QUESTION);
        self.exchange(most, |message, _| answer(message)).await
    }

    /// Answers one message of limited size with another, which holds the call's share of the byte budget until the
    /// client has read it.
    pub(super) async fn exchange<M, R, A>(
        self,
        most: usize,
        mut answer: impl FnMut(M, Arc<Share>) -> A + Send,
    ) -> Response
    where
        M: Message + Default + 'static,
        R: Message + 'static,
        A: Future<Output = Result<tonic::Response<R>, Error>> + Send,
    {
        let Self { shared, request, started, deadline, visit: _visit } = self;
        let share = shared.budget.share();
        let request = request.map(|body| body.counted(share.clone(), most));
        let mut reached = false;
        let method = tower::service_fn(|request: tonic::Request<M>| {
            reached = true;
            answer(request.into_inner(), share.clone()).map_err(to_status)
        });
        let mut codec = codec::<R, M>(most);
        let response = within(deadline, codec.unary(method, request)).await;
        match response {
            Some(mut response) if reached => {
                response.extensions_mut().insert(share);
                response
            }
            Some(refusal) => match share.refusal() {
                Some(error) => refuse(shared, error),
                None => translate(shared, refusal, most),
            },
            None => expired(shared, started.elapsed(), reached),
        }
    }

    /// [`unary`](Self::unary), for answers without waiting.
    pub(super) async fn read<M, R>(self, mut answer: impl FnMut(M) -> Result<R, Error> + Send) -> Response
    where
        M: Message + Default + 'static,
        R: Message + 'static,
    {
        self.unary(|message| -> Ready<_> { ready(answer(message).map(tonic::Response::new)) }).await
    }

    /// Answers one message with a stream. The deadline covers the request only. The stream may last, so it must keep
    /// nothing whose size the request decides.
    pub(super) async fn stream<M, R, T>(self, mut answer: impl FnMut(M) -> T + Send) -> Response
    where
        M: Message + Default + 'static,
        R: Message + 'static,
        T: Stream<Item = Result<R, Status>> + Send + 'static,
    {
        let Self { shared, request, started, deadline, visit: _visit } = self;
        let share = shared.budget.share();
        let request = request.map(|body| body.counted(share.clone(), LONGEST_QUESTION));
        let mut reached = false;
        let method = tower::service_fn(|request: tonic::Request<M>| {
            reached = true;
            ready(Ok(tonic::Response::new(answer(request.into_inner()))))
        });
        let mut codec = codec::<R, M>(LONGEST_QUESTION);
        let response = within(deadline, codec.server_streaming(method, request)).await;
        match response {
            Some(response) if reached => response,
            Some(refusal) => match share.refusal() {
                Some(error) => refuse(shared, error),
                None => translate(shared, refusal, LONGEST_QUESTION),
            },
            None => expired(shared, started.elapsed(), reached),
        }
    }
}

/// Answers a call that was rejected, and counts it.
pub(super) fn refuse<S: InferenceService>(shared: &Shared<S>, error: Error) -> Response {
    to_status(shared.rejected(error, Transport::Grpc)).into_http()
}

fn codec<R, M>(limit: usize) -> tonic::server::Grpc<SingleCodec<R, M>>
where
    R: Message + 'static,
    M: Message + Default + 'static,
{
    tonic::server::Grpc::new(SingleCodec::default())
        .max_decoding_message_size(limit)
        .max_encoding_message_size(usize::MAX)
}

fn to_status(error: Error) -> Status {
    status::grpc(&error)
}

/// The service enforces the deadline itself and counts timeouts; cutting it off at the same moment would leave some
/// uncounted. This is for services that do not enforce it.
async fn within<T>(deadline: Option<Instant>, answer: impl Future<Output = T>) -> Option<T> {
    match deadline.and_then(|deadline| deadline.checked_add(GRACE)) {
        Some(end) => tokio::time::timeout_at(end, answer).await.ok(),
        None => Some(answer.await),
    }
}

/// The service counts the calls that it began.
fn expired<S: InferenceService>(shared: &Shared<S>, waited: Duration, reached: bool) -> Response {
    let error = Error::DeadlineExceeded { waited };
    if reached { to_status(error).into_http() } else { refuse(shared, error) }
}

/// Replaces tonic's message of a rejection.
fn translate<S: InferenceService>(shared: &Shared<S>, refusal: Response, most: usize) -> Response {
    let Some(status) = Status::from_header_map(refusal.headers()) else { return refusal };
    let error = match status.code() {
        Code::OutOfRange => Error::BodyTooLarge { limit: most },
        Code::Unimplemented => Error::Unimplemented { what: "message compression".into() },
        _ => Error::Malformed { message: status.message().trim_end_matches('.').into() },
    };
    refuse(shared, error)
}
