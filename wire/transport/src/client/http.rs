//! A client over HTTP/1.1: tensors in the binary extension, one request at a time on a kept connection.

use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header, request};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::rest::request::Form;
use parm_protocol::rest::{self, Encoded};
use parm_protocol::{
    Code, Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, Parameter,
    ServerMetadata,
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::dial::Dialer;
use super::http1::Upgraded;
use super::pool::{Answer, Failure, Payload, Pool, authorization};
use super::{Config, Tensors, deadline, status};

/// A client over HTTP.
pub struct Http {
    pool: Pool,
    authorization: Option<HeaderValue>,
    form: Form,
    /// Largest body of an answer.
    limit: usize,
    control_timeout: Duration,
    load_timeout: Duration,
}

/// A response with its whole body.
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Http {
    /// A client of the server that `dialer` reaches. Nothing is sent yet.
    pub(super) fn new(dialer: Dialer, config: &Config) -> Result<Self, Error> {
        Ok(Self {
            authorization: authorization(config)?,
            form: match config.tensors {
                Tensors::Binary => Form::Binary,
                Tensors::Json => Form::Json,
            },
            limit: config.max_body_bytes.get(),
            control_timeout: config.control_timeout,
            load_timeout: config.load_timeout,
            pool: Pool::http1(dialer, config)?,
        })
    }

    pub(super) fn get(&self, path: &str) -> request::Builder {
        self.request(Method::GET, path)
    }

    fn request(&self, method: Method, path: &str) -> request::Builder {
        let builder = Request::builder().method(method).uri(path);
        match &self.authorization {
            Some(value) => builder.header(header::AUTHORIZATION, value),
            None => builder,
        }
    }

    /// Asks for another protocol. The error of a refusal has its status and body.
    pub(super) async fn upgrade(
        &self,
        request: request::Builder,
    ) -> Result<Result<Upgraded, (StatusCode, Bytes)>, Error> {
        match self.pool.upgrade(&built(request, Encoded::default())?).await {
            Ok(Ok(agreed)) => Ok(Ok(agreed)),
            Ok(Err(refusal)) => {
                let Reply { status, body, .. } = self.reply(Ok(refusal)).await?;
                Ok(Err((status, body)))
            }
            Err(failure) => Err(failure.at(self.pool.dialer(), self.limit)),
        }
    }

    /// The configured encoding of tensors.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Like `infer`, with tensors in this encoding.
    pub(super) async fn infer_as(
        &self,
        form: Form,
        request: InferRequest,
        context: CallContext,
    ) -> Result<InferResponse, Error> {
        deadline::within(context.deadline, self.send(form, request, context)).await
    }

    async fn send(
        &self,
        form: Form,
        mut request: InferRequest,
        context: CallContext,
    ) -> Result<InferResponse, Error> {
        if let Some(deadline) = context.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            let micros = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
            request.parameters.insert("timeout".into(), Parameter::Uint64(micros));
        }
        let path = format!("{}/infer", path_of(&request.model));
        let mut builder = self.request(Method::POST, &path);
        if let Some(traceparent) = &context.traceparent {
            builder = builder.header("traceparent", traceparent);
        }
        let body = rest::request::encode(&request, form)?;
        builder = match body.json_length() {
            Some(length) => builder.header(header::CONTENT_TYPE, OCTETS).header(rest::HEADER_LENGTH, length),
            None => builder.header(header::CONTENT_TYPE, JSON),
        };
        let permit = self.pool.permit()?;
        let reply = self.reply(self.pool.send(&built(builder, body)?, !context.once, permit).await).await?;
        if reply.status != StatusCode::OK {
            return Err(refusal(&reply, &Method::POST, &path));
        }
        let json_length =
            reply.headers.get(rest::HEADER_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        rest::response::decode(json_length, reply.body)
            .map_err(|error| status::unreadable(self.pool.dialer().peer(), &error))
    }

    async fn reply(&self, outcome: Result<http::Response<Answer>, Failure>) -> Result<Reply, Error> {
        let read = async {
            let (head, answer) = outcome?.into_parts();
            let (body, _) = answer.collect(self.limit).await?;
            Ok::<_, Failure>(Reply { status: head.status, headers: head.headers, body })
        };
        read.await.map_err(|failure| failure.at(self.pool.dialer(), self.limit))
    }

    /// Calls an endpoint other than inference.
    async fn ask(&self, request: request::Builder) -> Result<Reply, Error> {
        let request = built(request, Encoded::default())?;
        self.within(self.control_timeout, async { self.reply(self.pool.ask(&request).await).await }).await
    }

    /// Loads or unloads a model. The body of a success differs between servers and is ignored.
    async fn order(&self, order: &str, name: &str) -> Result<(), Error> {
        let mut path = String::from("/v2/repository/models/");
        escape(&mut path, name);
        path.push_str(order);
        let request = built(self.request(Method::POST, &path), Encoded::default())?;
        let permit = self.pool.permit()?;
        let ordered = async { self.reply(self.pool.send(&request, true, permit).await).await };
        let reply = self.within(self.load_timeout, ordered).await?;
        if reply.status.is_success() { Ok(()) } else { Err(refusal(&reply, &Method::POST, &path)) }
    }

    async fn read<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T, Error> {
        let reply = self.ask(self.request(method.clone(), path)).await?;
        if reply.status != StatusCode::OK {
            return Err(refusal(&reply, &method, path));
        }
        serde_json::from_slice(&reply.body).map_err(|error| {
            self.pool.dialer().transport(format!("unreadable answer to {method} {path}: {error}"))
        })
    }

    async fn within(
        &self,
        limit: Duration,
        reply: impl Future<Output = Result<Reply, Error>>,
    ) -> Result<Reply, Error> {
        match tokio::time::timeout(limit, reply).await {
            Ok(result) => result,
            Err(_) => Err(self.pool.dialer().transport(format!("timed out after {limit:?}"))),
        }
    }
}

impl Client for Http {
    fn peer(&self) -> &str {
        self.pool.dialer().peer()
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        Box::pin(self.infer_as(self.form, request, context))
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(async {
            let answer = self.ask(self.get(READY)).await?;
            match answer.status {
                StatusCode::OK => Ok(true),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    Err(refusal(&answer, &Method::GET, READY))
                }
                status @ (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) => Err(Error::Remote {
                    code: Code::Unimplemented,
                    message: format!(
                        "it answered {} to GET {READY}: it does not speak the Open Inference Protocol, which parm needs \
                         (docs/interop.md)",
                        status.as_u16()
                    ),
                }),
                _ => Ok(false),
            }
        })
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        Box::pin(self.read(Method::GET, "/v2"))
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        Box::pin(async move { self.read(Method::GET, &path_of(model)).await })
    }

    fn model_config<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelConfig, Error>> {
        Box::pin(async move { self.read(Method::GET, &format!("{}/config", path_of(model))).await })
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        Box::pin(self.read(Method::POST, "/v2/repository/index"))
    }

    fn load_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.order("/load", name))
    }

    fn unload_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.order("/unload", name))
    }
}

const READY: &str = "/v2/health/ready";
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

fn built(request: request::Builder, body: Encoded) -> Result<Request<Payload>, Error> {
    request
        .body(Payload::Whole(body))
        .map_err(|error| Error::Malformed { message: format!("cannot build an HTTP request: {error}") })
}

fn refusal(reply: &Reply, method: &Method, path: &str) -> Error {
    let asked = format!("{method} {path}");
    status::from_http(reply.status, status::sheds(&reply.headers), &reply.body, &asked)
}

/// `/v2/models/M[/versions/V]`, with characters escaped that a path cannot contain.
fn path_of(model: &ModelRef) -> String {
    let mut path = String::with_capacity(32 + model.name.len());
    path.push_str("/v2/models/");
    escape(&mut path, &model.name);
    if let Some(version) = &model.version {
        path.push_str("/versions/");
        escape(&mut path, version);
    }
    path
}

fn escape(path: &mut String, segment: &str) {
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
}
