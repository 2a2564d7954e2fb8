//! gRPC on any HTTP/2 connection: the protocol's service, health checks and reflection.
//!
//! A call with one message each way is read like any other body (`body`), so access, limits and classes of errors are those of
//! REST; the deadline is the call's own. Only reflection is a stream of messages, which another library answers.

mod reflection;
#[cfg(test)]
mod tests;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method as HttpMethod, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parm_protocol::bounds::Room;
use parm_protocol::grpc::convert::{self, model_ref};
use parm_protocol::grpc::{SERVICE, decode_bounded, inference as proto};
use parm_protocol::{Code, Context, Error, InferenceService, Transport};
use prost::Message;
use tokio::time::{Instant, timeout_at};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

pub(super) use self::reflection::Reflection;
use super::body::{self, Held};
use super::shared::{Reach, Shared};
use super::{rest, status};
use crate::budget::Share;
use crate::grpc;
use crate::keys::{self, Access, Route};
use crate::listening::Lent;
use crate::routes::Endpoint;

/// Time after the deadline at which a call is cut off if the service has not reported the timeout by then. The service enforces
/// the deadline itself and counts timeouts; cutting it off at the same moment would leave some uncounted.
const GRACE: Duration = Duration::from_millis(100);

/// Largest message of a call other than a prediction: names, and settings that are ignored.
const LONGEST_QUESTION: usize = 1 << 20;

/// Characters of an unknown path in the error: enough to recognise a typing error.
const SHOWN: usize = 120;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Answers a call.
pub(super) async fn answer<S: InferenceService>(
    shared: &Arc<Shared<S>>,
    request: Request<Lent<Incoming>>,
    reach: Reach,
) -> Response<Body> {
    let refused = |error| refuse(shared, error);
    // The caller is checked first: a client without a key cannot probe for methods.
    let route = keys::find(keys::GRPC, &HttpMethod::POST, request.uri().path());
    let access = route.map_or(Access::AnyKey, |route| route.access);
    let visit = match shared.check(request.headers(), access, reach) {
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
    if matches!(route.endpoint, Endpoint::Reflection | Endpoint::ReflectionAlpha) {
        return shared.reflection.answer(shared, route.endpoint, request).await;
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
            let status = match &*asked.service {
                "" | SERVICE if service.is_ready() => ServingStatus::Serving,
                "" | SERVICE => ServingStatus::NotServing,
                unknown => {
                    let message = format!("unknown service '{unknown}': ask for '' or '{SERVICE}'");
                    return Err(Error::Remote { code: Code::NotFound, message });
                }
            };
            Ok(unary(&HealthCheckResponse { status: status.into() }))
        }
        // Rows of other tables, and watching health: clients then call as if the server was well.
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
    let body = Full::new(grpc::frame(message)).with_trailers(ready(Some(Ok(well()))));
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}
