//! A client of an upstream server: any HTTP or gRPC server, whose requests and answers parm does not read.
//!
//! Reading order: `uplink` is the way to the server, over connections of HTTP/1.1 or one of `http2`. `content` says when an answer
//! has begun, `rest` passes on what follows.

mod content;
mod http2;
mod rest;
#[cfg(test)]
mod tests;
mod uplink;

use std::future::ready;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::{
    Broken, Error, FailedAnswer, InferRequest, InferResponse, ModelIndex, ModelMetadata, ModelRef,
    OpaqueAnswer, OpaqueBody, OpaqueRequest, ServerMetadata, grpc_status, is_grpc, is_grpc_failure,
};

use self::content::{BodyForm, LARGEST_WHOLE};
use self::http2::{Asked, Http2};
use self::rest::{AnswerRest, NO_STATUS};
use self::uplink::{OpenAnswer, Uplink};
use super::dial::Dialer;
use super::http::connection::Failure;
use super::http::identity;
use super::http::pool::Pool;
use super::{Config, deadline};
use crate::end_to_end;

/// The least limit on requests in progress at a server.
const CONNECTIONS: NonZeroU32 = NonZeroU32::new(1024).unwrap();

/// The platform of the models that are routes.
pub const ROUTE: &str = "http_route";

/// A client of an upstream server.
pub struct Upstream {
    uplink: Uplink,
    /// The operator's key for the server; without one the client's own is passed on.
    authorization: Option<HeaderValue>,
    /// Names of the routes, which are its models.
    routes: Arc<[String]>,
    probe: Arc<str>,
    timeout: Duration,
}

impl Upstream {
    /// A client of the server that `dialer` reaches, over HTTP/1.1. Nothing is sent yet.
    pub(super) fn new(dialer: Dialer, config: &Config) -> Result<Self, Error> {
        let (host, authorization) = identity(&dialer, config)?;
        let uplink = Uplink::Http1 { pool: Arc::new(Pool::new(dialer, &widened(config))), host };
        Ok(Self::over(uplink, authorization, config.upstream.routes.clone(), config))
    }

    /// Like [`new`](Self::new), over HTTP/2 without asking whether the server speaks it.
    pub(super) fn over_http2(dialer: Dialer, config: &Config) -> Result<Self, Error> {
        let (_, authorization) = identity(&dialer, config)?;
        let uplink = Uplink::Http2(Box::new(Http2::new(dialer, &widened(config))?));
        Ok(Self::over(uplink, authorization, config.upstream.over_http2.clone(), config))
    }

    fn over(
        uplink: Uplink,
        authorization: Option<HeaderValue>,
        routes: Arc<[String]>,
        config: &Config,
    ) -> Self {
        let (probe, timeout) = (config.upstream.probe.clone(), config.control_timeout);
        Self { uplink, authorization, routes, probe, timeout }
    }

    async fn send(&self, request: &OpaqueRequest, context: CallContext) -> Result<OpaqueAnswer, Error> {
        let permit = self.uplink.permit().ok_or_else(|| busy(is_grpc(&request.headers)))?;
        let mut headers = request.headers.clone();
        if let Some(value) = &self.authorization {
            headers.insert(AUTHORIZATION, value.clone());
        }
        if let Some(Ok(value)) = context.traceparent.as_deref().map(HeaderValue::from_str) {
            headers.insert("traceparent", value);
        }
        let (method, target) = (request.method.clone(), request.target.clone());
        let (body, stream) = (request.body.clone(), request.stream.clone());
        let asked = Asked { method, target, headers, body, stream };
        let response = self.uplink.send(asked, request.repeatable, permit).await?;
        self.read(response, request.stall).await
    }

    /// Reads an answer until it has begun.
    async fn read(
        &self,
        response: http::Response<OpenAnswer>,
        stall: Duration,
    ) -> Result<OpaqueAnswer, Error> {
        let (parts, mut arriving) = response.into_parts();
        let (status, mut headers) = (parts.status, parts.headers);
        if status.is_informational() {
            return Err(self.broken(Failure::Broken(format!("it answered {status}, which nobody asked for"))));
        }
        if let Some(coding) = end_to_end::other_coding(&headers).filter(|_| !arriving.is_end()) {
            let coding: String = coding.chars().take(100).collect();
            let message = format!("its answer has the transfer coding '{coding}', which nothing asked for");
            return Err(self.broken(Failure::Broken(message)));
        }
        end_to_end::of_answer(&mut headers);
        let form = BodyForm::of(&headers);
        let mut begun = Begun::default();
        while let Some(frame) = arriving.frame().await.map_err(|failure| self.broken(failure))? {
            match frame.into_data() {
                Ok(bytes) => begun.add(bytes),
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
                    return Err(self.broken(Failure::TooLarge));
                }
            } else if form.has_content(begun.bytes()) && (form == BodyForm::Messages || !arriving.is_end()) {
                let broken = Broken::default();
                let rest = Box::pin(AnswerRest::new(arriving, form, stall, broken.clone()));
                let body = OpaqueBody::Begun(begun.freeze(), rest);
                return Ok(OpaqueAnswer { status, headers, body, broken });
            }
        }
        arriving.end();
        let body = begun.freeze();
        if is_failure(status, &headers) {
            return Err(Error::Answered(Box::new(FailedAnswer { status, headers, body })));
        }
        if form == BodyForm::Messages && status == StatusCode::OK && grpc_status(&headers).is_none() {
            return Err(self.broken(Failure::Broken(NO_STATUS.into())));
        }
        Ok(OpaqueAnswer { status, headers, body: OpaqueBody::Whole(body), broken: Broken::default() })
    }

    fn broken(&self, failure: Failure) -> Error {
        self.uplink.explain(failure)
    }

    /// Asks whether the server answers HTTP requests at all.
    async fn is_alive(&self) -> Result<bool, Error> {
        let headers = self.authorization.iter().map(|value| (AUTHORIZATION, value.clone())).collect();
        let target = self.probe.parse();
        let target =
            target.map_err(|error: http::uri::InvalidUri| Error::Malformed { message: error.to_string() })?;
        let asked = Asked { method: Method::GET, target, headers, body: Bytes::new(), stream: None };
        let answer = tokio::time::timeout(self.timeout, self.uplink.answers(asked)).await;
        let waited = || self.uplink.dialer().transport(format!("timed out after {:?}", self.timeout));
        answer.map_err(|_| waited())?
    }
}

/// The settings of a server's connections: a stream keeps its place long after its first content.
fn widened(config: &Config) -> Config {
    Config { max_connections: config.max_connections.max(CONNECTIONS), ..config.clone() }
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

/// The beginning of a body. A single piece is not copied.
#[derive(Default)]
struct Begun {
    first: Bytes,
    whole: BytesMut,
}

impl Begun {
    fn add(&mut self, bytes: Bytes) {
        if self.first.is_empty() && self.whole.is_empty() {
            self.first = bytes;
            return;
        }
        self.whole.extend_from_slice(&std::mem::take(&mut self.first));
        self.whole.extend_from_slice(&bytes);
    }

    fn bytes(&self) -> &[u8] {
        if self.whole.is_empty() { &self.first } else { &self.whole }
    }

    fn freeze(self) -> Bytes {
        if self.whole.is_empty() { self.first } else { self.whole.freeze() }
    }
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
        let error = Error::Overloaded { message: message.into(), retry_after: Duration::from_secs(1) };
        let (head, ()) = crate::server::status_of(&error).into_http().into_parts();
        let (status, headers, body) = (head.status, head.headers, Bytes::new());
        return Error::Answered(Box::new(FailedAnswer { status, headers, body }));
    }
    let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("1"))]);
    let body = serde_json::json!({ "error": message }).to_string().into();
    Error::Answered(Box::new(FailedAnswer { status: StatusCode::SERVICE_UNAVAILABLE, headers, body }))
}

impl Client for Upstream {
    fn peer(&self) -> &str {
        self.uplink.dialer().peer()
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
        Box::pin(async move { deadline::within(context.deadline, self.send(&request, context)).await })
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
