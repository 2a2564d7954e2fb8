//! A client over HTTP/1.1: tensors in the binary extension, one request at a time on a kept connection. Its predictions go over
//! frames if the server offers them.

use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header, request};
use parm_grants::Order;
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::fleet::Watcher;
use parm_protocol::rest::request::Form;
use parm_protocol::rest::{self, Encoded};
use parm_protocol::{
    Code, Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, Parameter,
    ServerMetadata,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::dial::Dialer;
use super::frames::Frames;
use super::http1::Upgraded;
use super::pool::Pool;
use super::requests::{Reply, Requests, built, by_deadline};
use super::{Config, Tensors, status};

const READY: &str = "/v2/health/ready";
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Characters that a segment of a path cannot contain.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) struct Http {
    requests: Requests,
    form: Form,
    frames: Option<Frames>,
}

impl Http {
    /// A client of the server that `dialer` reaches. Nothing is sent yet.
    pub(super) fn new(dialer: Dialer, config: &Config, frames: Option<Frames>) -> Result<Self, Error> {
        let form = match config.tensors {
            Tensors::Binary => Form::Binary,
            Tensors::Json => Form::Json,
        };
        Ok(Self { requests: Requests::new(Pool::http1(dialer, config)?, config)?, form, frames })
    }

    pub(super) fn get(&self, path: &str) -> request::Builder {
        self.requests.request(Method::GET, path)
    }

    /// Asks for another protocol.
    pub(super) async fn upgrade(&self, request: request::Builder) -> Result<Result<Upgraded, Reply>, Error> {
        match self.requests.pool.upgrade(&built(request, Encoded::default())?).await {
            Ok(Ok(agreed)) => Ok(Ok(agreed)),
            Ok(Err(refusal)) => self.requests.whole(Ok(refusal)).await.map(Err),
            Err(failure) => Err(self.requests.error(failure)),
        }
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Sends a request over HTTP, with tensors in this encoding.
    pub(super) async fn infer_as(
        &self,
        form: Form,
        request: InferRequest,
        context: CallContext,
    ) -> Result<InferResponse, Error> {
        by_deadline(context.deadline, self.send(form, request, context)).await
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
        let mut builder = self.requests.request(Method::POST, &path);
        if let Some(traceparent) = &context.traceparent {
            builder = builder.header("traceparent", traceparent);
        }
        let body = rest::request::encode(&request, form)?;
        builder = match body.json_length() {
            Some(length) => builder.header(header::CONTENT_TYPE, OCTETS).header(rest::HEADER_LENGTH, length),
            None => builder.header(header::CONTENT_TYPE, JSON),
        };
        let reply = self.requests.infer(built(builder, body)?, context.once).await?;
        if reply.status != StatusCode::OK {
            return Err(refusal(&reply, &Method::POST, &path));
        }
        let json_length =
            reply.headers.get(rest::HEADER_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        rest::response::decode(json_length, reply.body)
            .map_err(|error| status::unreadable(self.peer(), &error))
    }

    /// Loads or unloads a model. The body of a success differs between servers and is ignored.
    async fn order(&self, order: &str, name: &str) -> Result<(), Error> {
        let path = format!("/v2/repository/models/{}{order}", escaped(name));
        let request = built(self.requests.request(Method::POST, &path), Encoded::default())?;
        let reply = self.requests.order(request, true).await?;
        if reply.status.is_success() { Ok(()) } else { Err(refusal(&reply, &Method::POST, &path)) }
    }

    async fn ask(&self, method: Method, path: &str) -> Result<Reply, Error> {
        self.requests.ask(built(self.requests.request(method, path), Encoded::default())?).await
    }

    async fn read<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T, Error> {
        let reply = self.ask(method.clone(), path).await?;
        if reply.status != StatusCode::OK {
            return Err(refusal(&reply, &method, path));
        }
        serde_json::from_slice(&reply.body).map_err(|error| {
            let message = format!("unreadable answer to {method} {path}: {error}");
            self.requests.pool.dialer().transport(message)
        })
    }
}

impl Client for Http {
    fn peer(&self) -> &str {
        self.requests.peer()
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        match &self.frames {
            Some(frames) => Box::pin(frames.infer(self, request, context)),
            None => Box::pin(self.infer_as(self.form, request, context)),
        }
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.frames.iter().for_each(|frames| frames.watch(watcher.clone()));
    }

    fn tell(&self, order: Order) {
        self.frames.iter().for_each(|frames| frames.tell(order));
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(async {
            let answer = self.ask(Method::GET, READY).await?;
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

fn refusal(reply: &Reply, method: &Method, path: &str) -> Error {
    let asked = format!("{method} {path}");
    status::from_http(reply.status, status::sheds(&reply.headers), &reply.body, &asked)
}

/// `/v2/models/M[/versions/V]`.
fn path_of(model: &ModelRef) -> String {
    let version = model.version.as_deref().map(|version| format!("/versions/{}", escaped(version)));
    format!("/v2/models/{}{}", escaped(&model.name), version.unwrap_or_default())
}

fn escaped(segment: &str) -> impl std::fmt::Display {
    utf8_percent_encode(segment, ESCAPED)
}
