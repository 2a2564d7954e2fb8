//! gRPC on any HTTP/2 connection: the protocol's service, health checks and reflection.
//!
//! A call with one message each way is read like any other body (`body`), so routing, access, limits, deadlines and errors are
//! those of REST. Only reflection is a stream of messages, which another library answers.

mod reflection;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method as HttpMethod, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use parm_protocol::bounds::Room;
use parm_protocol::grpc::convert::{self, model_ref};
use parm_protocol::grpc::{SERVICE, decode_bounded, inference as proto};
use parm_protocol::{Context, Error, InferenceService, Transport};
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

pub(super) use self::reflection::Reflection;
use super::auth::Reach;
use super::body::{self, Held};
use super::requests::App;
use super::shared::Shared;
use super::{rest, status};
use crate::budget::Share;
use crate::grpc;
use crate::keys::{self, Access, Route};
use crate::listening::{Activity, Connection, Lent, Watch};
use crate::routes::Endpoint;

/// Time after the deadline at which a call is cut off if the service has not reported the timeout by then. The service enforces
/// the deadline itself and counts timeouts; cutting it off at the same moment would leave some uncounted.
const GRACE: Duration = Duration::from_millis(100);

/// Largest message of a call other than a prediction: names, and settings that are ignored.
const LONGEST_QUESTION: usize = 1 << 20;

/// Characters of an unknown path in the error: enough to recognise a typing error.
const SHOWN: usize = 120;

/// Interval at which readiness is polled for watches. The end of serving, which is urgent, is reported at once.
const PERIOD: Duration = Duration::from_secs(1);

/// Watches on one connection: a proxy needs one for each of its own clients, a client needs one. A watch needs no key, lasts for
/// as long as its client likes and takes about 7 KB.
const WATCHES: usize = 16;

/// Watches of the server that are not the first of their connection, about 7 MB. The first always has a place: clients that
/// check health open one for each connection, and treat a server that rejects it as unhealthy.
pub(super) const FURTHER: usize = 1024;

/// Time after which a rejected watch may retry. Watches last, so a place is rarely free at once.
const RETRY: Duration = Duration::from_secs(30);

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Answers a call.
pub(super) async fn answer<S: InferenceService>(
    app: &App<S>,
    request: Request<Lent<Incoming>>,
    connection: &Connection,
    reach: Reach,
) -> Response<Body> {
    let shared = &app.shared;
    let refused = |error| refuse(shared, error);
    // The caller is checked first: a client without a key cannot probe for methods.
    let route = keys::find(keys::GRPC, &HttpMethod::POST, request.uri().path());
    let access = route.map_or(Access::AnyKey, |route| route.access);
    let visit = match shared.guard.check(request.headers(), access, reach) {
        Ok(visit) => visit,
        Err(error) => return refused(error),
    };
    let Some(route) = route else {
        let shown: String = request.uri().path().chars().take(SHOWN).collect();
        let what = format!("the gRPC method '{shown}' (reflection lists the methods)");
        return refused(Error::Unimplemented { what });
    };
    if access == Access::Control {
        shared.changed(request.method(), request.uri().path(), &visit);
    }
    match route.endpoint {
        Endpoint::Reflection | Endpoint::ReflectionAlpha => {
            return app.reflection.answer(shared, route.endpoint, request).await;
        }
        Endpoint::Watch => return watch(shared, request, &connection.activity).await,
        _ => {}
    }
    let arrived = Instant::now();
    let (head, body) = request.into_parts();
    // A deadline beyond the range of the clock counts as none.
    let deadline = match grpc::timeout_of(&head.headers) {
        Ok(timeout) => timeout.and_then(|timeout| arrived.checked_add(timeout)),
        Err(error) => return refused(error),
    };
    let most = match route.endpoint {
        Endpoint::Infer => shared.config.max_body_bytes.get(),
        _ => shared.config.max_body_bytes.get().min(LONGEST_QUESTION),
    };
    let read = within(deadline, body::read_message(&head.headers, body, shared, most)).await;
    let Held { bytes, share } = match read {
        Some(Ok(held)) => held,
        Some(Err(error)) => return refused(error),
        None => return refused(Error::DeadlineExceeded { waited: arrived.elapsed() }),
    };
    let context = Context {
        arrived,
        deadline,
        transport: Transport::Grpc,
        traceparent: rest::traceparent(&head.headers),
        caller: None,
        key: visit.caller().name(),
    };
    let end = deadline.and_then(|deadline| deadline.checked_add(GRACE));
    match within(end, respond(shared, route, bytes, share, context)).await {
        Some(Ok(response)) => response,
        Some(Err(error)) => status::grpc(&error).into_http(),
        // The service counts the calls that it began.
        None => status::grpc(&Error::DeadlineExceeded { waited: arrived.elapsed() }).into_http(),
    }
}

/// Runs a call. Errors of its message are counted here, those of the service by itself.
async fn respond<S: InferenceService>(
    shared: &Arc<Shared<S>>,
    route: &Route,
    message: Bytes,
    share: Arc<Share>,
    context: Context,
) -> Result<Response<Body>, Error> {
    let service = &*shared.service;
    let rejected = |error| shared.rejected(error, Transport::Grpc);
    let with = |message: Result<Response<Body>, Error>| {
        message.map(|mut response| {
            response.extensions_mut().insert(share.clone());
            response
        })
    };
    macro_rules! read {
        ($message:ty) => {
            <$message>::decode(message).map_err(malformed).map_err(rejected)?
        };
    }
    with(match route.endpoint {
        Endpoint::Infer => {
            let request = decode_bounded(message, Room::of(shared.config.max_body_bytes.get()))
                .and_then(convert::request_from_message)
                .and_then(|request| shared.holds(&share, &request).map(|()| request))
                .map_err(rejected)?;
            let response = service.infer(request, context).await?;
            share.turn_into(response.data_bytes())?;
            let outcome = rest::outcome(&response);
            let mut answer = unary(&convert::response_to_message(response));
            answer.headers_mut().extend(outcome);
            Ok(answer)
        }
        Endpoint::Live => {
            read!(proto::ServerLiveRequest);
            Ok(unary(&proto::ServerLiveResponse { live: service.is_live() }))
        }
        Endpoint::Ready => {
            read!(proto::ServerReadyRequest);
            Ok(unary(&proto::ServerReadyResponse { ready: service.is_ready() }))
        }
        Endpoint::Server => {
            read!(proto::ServerMetadataRequest);
            Ok(unary(&convert::server_to_message(service.server_metadata())))
        }
        Endpoint::ModelReady => {
            let proto::ModelReadyRequest { name, version } = read!(proto::ModelReadyRequest);
            let ready = service.is_model_ready(&model_ref(name, version))?;
            Ok(unary(&proto::ModelReadyResponse { ready }))
        }
        Endpoint::Metadata => {
            let proto::ModelMetadataRequest { name, version } = read!(proto::ModelMetadataRequest);
            Ok(unary(&service.model_metadata(&model_ref(name, version))?))
        }
        Endpoint::ModelConfig => {
            let proto::ModelConfigRequest { name, version } = read!(proto::ModelConfigRequest);
            let config = convert::config_to_message(service.model_config(&model_ref(name, version))?);
            Ok(unary(&proto::ModelConfigResponse { config: Some(config) }))
        }
        Endpoint::Statistics => {
            let proto::ModelStatisticsRequest { name, version } = read!(proto::ModelStatisticsRequest);
            // Without a name, statistics of all models.
            let model = (!name.is_empty()).then(|| model_ref(name, version));
            let model_stats = service.statistics(model.as_ref())?;
            Ok(unary(&proto::ModelStatisticsResponse { model_stats }))
        }
        Endpoint::Index => {
            let models = service.repository_index(read!(proto::RepositoryIndexRequest).ready)?;
            Ok(unary(&proto::RepositoryIndexResponse { models }))
        }
        Endpoint::Load => {
            let asked = read!(proto::RepositoryModelLoadRequest);
            rest::reject_replacements(asked.parameters.keys().map(String::as_str))?;
            service.load_model(&asked.model_name).await?;
            Ok(unary(&proto::RepositoryModelLoadResponse {}))
        }
        Endpoint::Unload => {
            service.unload_model(&read!(proto::RepositoryModelUnloadRequest).model_name).await?;
            Ok(unary(&proto::RepositoryModelUnloadResponse {}))
        }
        Endpoint::Check => {
            let asked = read!(HealthCheckRequest);
            match serving(shared, is_ours(&asked.service)) {
                ServingStatus::ServiceUnknown => Err(Error::UnknownService { service: asked.service }),
                status => Ok(unary(&HealthCheckResponse { status: status.into() })),
            }
        }
        // Rows of other tables.
        _ => Err(Error::Unimplemented { what: route.path.to_owned() }),
    })
}

fn malformed(error: prost::DecodeError) -> Error {
    Error::malformed(error.to_string())
}

/// Answers a call that was rejected, and counts it.
fn refuse<S: InferenceService>(shared: &Shared<S>, error: Error) -> Response<Body> {
    status::grpc(&shared.rejected(error, Transport::Grpc)).into_http()
}

async fn within<T>(end: Option<Instant>, answer: impl Future<Output = T>) -> Option<T> {
    match end {
        Some(end) => timeout_at(end, answer).await.ok(),
        None => Some(answer.await),
    }
}

/// The trailers of a call that succeeded.
fn well() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))])
}

/// An answer of one message.
fn unary(message: &impl Message) -> Response<Body> {
    ok(Body::new(Full::new(grpc::frame(message)).with_trailers(ready(Some(Ok(well()))))))
}

fn ok(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// Answers `grpc.health.v1.Health/Watch`.
async fn watch<S: InferenceService>(
    shared: &Arc<Shared<S>>,
    request: Request<Lent<Incoming>>,
    activity: &Activity,
) -> Response<Body> {
    let permit = match place(activity.watching(), &shared.watches) {
        Ok(permit) => permit,
        Err(error) => return refuse(shared, error),
    };
    let (head, body) = request.into_parts();
    let read = body::read_message(&head.headers, body, shared, LONGEST_QUESTION).await;
    let asked = read.and_then(|held| HealthCheckRequest::decode(held.bytes).map_err(malformed));
    let ours = match asked {
        Ok(asked) => is_ours(&asked.service),
        Err(error) => return refuse(shared, error),
    };
    let messages = changes(shared.clone(), ours, permit)
        .map(|now| Frame::data(grpc::frame(&HealthCheckResponse { status: now.into() })));
    let frames = messages.chain(stream::once(ready(Frame::trailers(well()))));
    let mut response = ok(Body::new(StreamBody::new(frames.map(Ok::<_, Infallible>))));
    response.extensions_mut().insert(Watch);
    response
}

/// A place for a watch next to others of its connection; the first needs none.
fn place(watching: usize, places: &Arc<Semaphore>) -> Result<Option<OwnedSemaphorePermit>, Error> {
    let full = |why: String| Error::TooManyRequests {
        message: format!("cannot watch health: {why}"),
        retry_after: RETRY,
    };
    match watching {
        0 => Ok(None),
        WATCHES.. => {
            Err(full(format!("{WATCHES} watches are open on this connection: share one watch among clients")))
        }
        _ => places.clone().try_acquire_owned().map(Some).map_err(|_| {
            full(format!(
                "{FURTHER} watches are open that are not the first of a connection: use one a connection"
            ))
        }),
    }
}

/// The status now, and then every change, until the server drains. As the protocol requires, an unknown service is not
/// an error for watches. The service's name is not kept: a watch lasts, needs no key, and a name may be long.
fn changes<S: InferenceService>(
    shared: Arc<Shared<S>>,
    ours: bool,
    permit: Option<OwnedSemaphorePermit>,
) -> impl Stream<Item = ServingStatus> + Send + 'static {
    stream::unfold((shared, permit, None), move |(shared, permit, told)| async move {
        let drain = shared.drain.begun.clone();
        let mut now = serving(&shared, ours);
        while told == Some(now) {
            let drains = drain.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_none();
            now = serving(&shared, ours);
            // Drained connections close when nothing is in progress on them, and a watch would never end.
            if drains && told == Some(now) {
                return None;
            }
        }
        Some((now, (shared, permit, Some(now))))
    })
}

/// Whether a name is the server's or its service's.
fn is_ours(service: &str) -> bool {
    matches!(service, "" | SERVICE)
}

fn serving<S: InferenceService>(shared: &Shared<S>, ours: bool) -> ServingStatus {
    match ours {
        true if shared.service.is_ready() => ServingStatus::Serving,
        true => ServingStatus::NotServing,
        false => ServingStatus::ServiceUnknown,
    }
}
