//! A client of an upstream server: any HTTP or gRPC server, whose requests and answers parm does not read.
//!
//! Reading order: `content` says when an answer has begun, `rest` passes on what follows.

mod content;
mod rest;
#[cfg(test)]
pub(super) mod tests;

use std::future::ready;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::rest::Encoded;
use parm_protocol::{
    Broken, Error, FailedAnswer, InferRequest, InferResponse, ModelIndex, ModelMetadata, ModelRef,
    OpaqueAnswer, OpaqueBody, OpaqueRequest, ServerMetadata, grpc_status, is_grpc, is_grpc_failure,
};

use self::content::{BodyForm, LARGEST_WHOLE};
use self::rest::{AnswerRest, NO_STATUS};
use super::Config;
use super::dial::Dialer;
use super::pool::{Answer, Failure, Payload, Pool};
use super::requests::{Requests, by_deadline};
use crate::begun::Begun;
use crate::end_to_end;

/// The least limit on requests in progress at a server: a stream keeps its place long after its first content.
const CONNECTIONS: NonZeroU32 = NonZeroU32::new(1024).unwrap();

/// Bytes of one answer that a server of HTTP/2 may send before the client has read them.
const WINDOW: u32 = 256 << 10;

/// The platform of the models that are routes.
pub const ROUTE: &str = "http_route";

pub(super) struct Upstream {
    /// With the operator's key for the server; without one the client's own is passed on.
    requests: Requests,
    /// Names of the routes, which are its models.
    routes: Arc<[String]>,
    probe: Arc<str>,
}

impl Upstream {
    /// A client of the server that `dialer` reaches, over HTTP/1.1, or over HTTP/2 without asking whether the server speaks it.
    /// Nothing is sent yet.
    pub(super) fn new(dialer: Dialer, config: &Config, over_http2: bool) -> Result<Self, Error> {
        let most = config.max_connections.max(CONNECTIONS);
        let (pool, routes) = if over_http2 {
            (Pool::http2(dialer, WINDOW, most.get() as usize)?, config.upstream.over_http2.clone())
        } else {
            let widened = Config { max_connections: most, ..config.clone() };
            (Pool::http1(dialer, &widened)?, config.upstream.routes.clone())
        };
        Ok(Self { requests: Requests::new(pool, config)?, routes, probe: config.upstream.probe.clone() })
    }

    async fn send(&self, asked: &OpaqueRequest, context: CallContext) -> Result<OpaqueAnswer, Error> {
        let permit = self.requests.pool.permit().map_err(|_| busy(is_grpc(&asked.headers)))?;
        let body = match &asked.stream {
            Some(stream) => Payload::Streamed(stream.clone()),
            None => Payload::Whole(Encoded::from(asked.body.clone())),
        };
        let mut request = Request::new(body);
        *request.method_mut() = asked.method.clone();
        *request.uri_mut() = asked.target.clone().into();
        *request.headers_mut() = asked.headers.clone();
        let headers = request.headers_mut();
        if let Some(value) = &self.requests.authorization {
            headers.insert(AUTHORIZATION, value.clone());
        }
        if let Some(Ok(value)) = context.traceparent.as_deref().map(HeaderValue::from_str) {
            headers.insert("traceparent", value);
        }
        if !self.requests.pool.is_http2() {
            join_cookies(headers);
            // Some servers read the length of each such request.
            if asked.body.is_empty() && matches!(asked.method, Method::POST | Method::PUT | Method::PATCH) {
                headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
        }
        let response = self.requests.pool.send(&request, asked.repeatable, permit).await;
        self.read(response.map_err(|failure| self.explain(failure))?, asked.stall).await
    }

    /// Reads an answer until it has begun.
    async fn read(&self, response: Response<Answer>, stall: Duration) -> Result<OpaqueAnswer, Error> {
        let (parts, mut arriving) = response.into_parts();
        let (status, mut headers) = (parts.status, parts.headers);
        if status.is_informational() {
            return Err(
                self.explain(Failure::Broken(format!("it answered {status}, which nobody asked for")))
            );
        }
        if let Some(coding) = end_to_end::other_coding(&headers).filter(|_| !arriving.is_end()) {
            let coding: String = coding.chars().take(100).collect();
            let message = format!("its answer has the transfer coding '{coding}', which nothing asked for");
            return Err(self.explain(Failure::Broken(message)));
        }
        end_to_end::of_answer(&mut headers);
        let form = BodyForm::of(&headers);
        let mut begun = Begun::default();
        while let Some(frame) = arriving.frame().await.map_err(|failure| self.explain(failure))? {
            match frame.into_data() {
                Ok(bytes) => begun.add(bytes, 0),
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) if form == BodyForm::Messages => {
                        return ended(status, headers, begun, trailers);
                    }
                    // Trailers of a whole answer are dropped, as over HTTP/1.1.
                    _ => continue,
                },
            }
            if is_failure(status, &headers) {
                if begun.bytes().len() > LARGEST_WHOLE {
                    return Err(self.explain(Failure::TooLarge));
                }
            } else if form.has_content(begun.bytes()) && (form == BodyForm::Messages || !arriving.is_end()) {
                let broken = Broken::default();
                let rest = Box::pin(AnswerRest::new(arriving, form, stall, broken.clone()));
                let body = OpaqueBody::Begun(begun.freeze(), rest);
                return Ok(OpaqueAnswer { status, headers, body, broken });
            }
        }
        let body = begun.freeze();
        if is_failure(status, &headers) {
            return Err(Error::Answered(Box::new(FailedAnswer { status, headers, body })));
        }
        if form == BodyForm::Messages && status == StatusCode::OK && grpc_status(&headers).is_none() {
            return Err(self.explain(Failure::Broken(NO_STATUS.into())));
        }
        Ok(OpaqueAnswer { status, headers, body: OpaqueBody::Whole(body), broken: Broken::default() })
    }

    fn explain(&self, failure: Failure) -> Error {
        let dialer = self.requests.pool.dialer();
        match failure {
            Failure::NotConnected(error @ (Error::Unimplemented { .. } | Error::Malformed { .. })) => error,
            Failure::NotConnected(_) | Failure::Unsent(_) => {
                Error::Unsent { peer: dialer.peer().to_owned(), message: failure.message() }
            }
            Failure::TooLarge => dialer.transport("the answer to a failed request is too large"),
            Failure::NoAnswer(_) | Failure::Broken(_) => dialer.transport(failure.message()),
        }
    }

    /// Whether the server answers an HTTP request at all: with a head, or with a reset of this request alone. A status from 500
    /// without a gRPC status is a failure.
    async fn is_alive(&self) -> Result<bool, Error> {
        let mut request = Request::new(Payload::Whole(Encoded::default()));
        *request.uri_mut() =
            self.probe.parse().map_err(|error: http::uri::InvalidUri| Error::malformed(error.to_string()))?;
        request
            .headers_mut()
            .extend(self.requests.authorization.iter().map(|value| (AUTHORIZATION, value.clone())));
        let failed = |failure: Failure| failure.at(self.requests.pool.dialer(), LARGEST_WHOLE);
        let answered = async {
            let (head, answer) = match self.requests.pool.ask(&request).await {
                Ok(response) => response.into_parts(),
                Err(Failure::Broken(_)) => return Ok(true),
                Err(failure) => return Err(failed(failure)),
            };
            if !self.requests.pool.is_http2() {
                // The connection is kept for the next request.
                answer.collect(LARGEST_WHOLE).await.map_err(failed)?;
            }
            Ok(!head.status.is_server_error() || head.headers.contains_key("grpc-status"))
        };
        self.requests.control(answered).await
    }
}

/// Joins the cookies, which HTTP/2 may split into several headers (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// The answer to a call that ended before its first whole message.
fn ended(
    status: StatusCode,
    mut headers: HeaderMap,
    begun: Begun,
    trailers: HeaderMap,
) -> Result<OpaqueAnswer, Error> {
    if is_failure(status, &trailers) {
        headers.extend(trailers);
        return Err(Error::Answered(Box::new(FailedAnswer { status, headers, body: Bytes::new() })));
    }
    let rest = Empty::new().map_err(|never| match never {}).with_trailers(ready(Some(Ok(trailers))));
    let (body, broken) = (OpaqueBody::Begun(begun.freeze(), Box::pin(rest)), Broken::default());
    Ok(OpaqueAnswer { status, headers, body, broken })
}

/// Whether an answer says that this server cannot serve the request now, though another might. The headers may be trailers.
fn is_failure(status: StatusCode, headers: &HeaderMap) -> bool {
    match status {
        StatusCode::TOO_MANY_REQUESTS => headers.contains_key(RETRY_AFTER),
        StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => false,
        status => status.is_server_error() || is_grpc_failure(headers),
    }
}

/// The error at the limit on requests at one server.
fn busy(is_call: bool) -> Error {
    let message = "all connections to this server are in use: raise frontend.client.max_connections";
    if is_call {
        let (head, ()) = crate::server::status_of(&Error::overloaded(message)).into_http().into_parts();
        let (status, headers, body) = (head.status, head.headers, Bytes::new());
        return Error::Answered(Box::new(FailedAnswer { status, headers, body }));
    }
    let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("1"))]);
    let body = serde_json::json!({ "error": message }).to_string().into();
    Error::Answered(Box::new(FailedAnswer { status: StatusCode::SERVICE_UNAVAILABLE, headers, body }))
}

impl Client for Upstream {
    fn peer(&self) -> &str {
        self.requests.peer()
    }

    fn infer(&self, _: InferRequest, _: CallContext) -> BoxFuture<'_, Result<InferResponse, Error>> {
        let what = "tensors: an upstream gets requests as clients send them";
        Box::pin(async { Err(Error::Unimplemented { what: what.into() }) })
    }

    fn forward(
        &self,
        request: Arc<OpaqueRequest>,
        context: CallContext,
    ) -> BoxFuture<'_, Result<OpaqueAnswer, Error>> {
        Box::pin(async move { by_deadline(context.deadline, self.send(&request, context)).await })
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(self.is_alive())
    }

    /// A cancelled request closed its connection or reset its stream, and no answer would say what the server does with it.
    fn settled(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        Box::pin(async { Ok(ServerMetadata::default()) })
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        let metadata =
            ModelMetadata { name: model.name.clone(), platform: ROUTE.into(), ..ModelMetadata::default() };
        Box::pin(async { Ok(metadata) })
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        let ready =
            |name: &String| ModelIndex { name: name.clone(), state: "READY".into(), ..ModelIndex::default() };
        Box::pin(async move { Ok(self.routes.iter().map(ready).collect()) })
    }
}
