//! A client over HTTP/1.1: tensors in the binary extension, one request at a time on a kept connection.

mod checked_socket;
pub(super) mod connection;
pub(super) mod pool;
mod posts;

use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use http::{HeaderValue, Method, Request, StatusCode, header, request};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

pub(super) use connection::Upgrade;
use parm_protocol::client::{BoxFuture, CallContext, Client};
pub use posts::{Arriving, Posts};

use self::connection::Answer;
use self::pool::Pool;
use super::dial::Dialer;

use parm_protocol::rest::request::Form;
use parm_protocol::rest::{self, Encoded};
use parm_protocol::{
    Code, Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, Parameter,
    ServerMetadata,
};

use super::{Config, Tensors, deadline, status};

/// A client over HTTP.
pub struct Http {
    pool: Pool,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    form: Form,
    control_timeout: Duration,
    load_timeout: Duration,
}

impl Http {
    /// A client of the server that `dialer` reaches. Nothing is sent yet.
    pub(super) fn new(dialer: Dialer, config: &Config) -> Result<Self, Error> {
        let (host, authorization) = identity(&dialer, config)?;
        Ok(Self {
            host,
            authorization,
            form: match config.tensors {
                Tensors::Binary => Form::Binary,
                Tensors::Json => Form::Json,
            },
            control_timeout: config.control_timeout,
            load_timeout: config.load_timeout,
            pool: Pool::new(dialer, config),
        })
    }

    pub(super) fn get(&self, path: &str) -> request::Builder {
        self.request(Method::GET, path)
    }

    fn request(&self, method: Method, path: &str) -> request::Builder {
        let builder = Request::builder().method(method).uri(path).header(header::HOST, &self.host);
        match &self.authorization {
            Some(value) => builder.header(header::AUTHORIZATION, value),
            None => builder,
        }
    }

    pub(super) async fn upgrade(&self, request: request::Builder) -> Result<Upgrade, Error> {
        self.pool.upgrade(built(request, Encoded::default())?).await
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
        let answer = self.pool.exchange(&built(builder, body)?, context.once).await?;
        if answer.status != StatusCode::OK {
            return Err(refusal(&answer, &Method::POST, &path));
        }
        let json_length =
            answer.headers.get(rest::HEADER_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        rest::response::decode(json_length, answer.body)
            .map_err(|error| status::unreadable(self.pool.dialer().peer(), &error))
    }

    /// Calls an endpoint other than inference.
    async fn ask(&self, request: request::Builder) -> Result<Answer, Error> {
        let request = built(request, Encoded::default())?;
        self.within(self.control_timeout, self.pool.ask(&request)).await
    }

    /// Loads or unloads a model. The body of a success differs between servers and is ignored.
    async fn order(&self, order: &str, name: &str) -> Result<(), Error> {
        let mut path = String::from("/v2/repository/models/");
        escape(&mut path, name);
        path.push_str(order);
        let request = built(self.request(Method::POST, &path), Encoded::default())?;
        let answer = self.within(self.load_timeout, self.pool.exchange(&request, false)).await?;
        if answer.status.is_success() { Ok(()) } else { Err(refusal(&answer, &Method::POST, &path)) }
    }

    async fn read<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T, Error> {
        let answer = self.ask(self.request(method.clone(), path)).await?;
        if answer.status != StatusCode::OK {
            return Err(refusal(&answer, &method, path));
        }
        serde_json::from_slice(&answer.body).map_err(|error| {
            self.pool.dialer().transport(format!("unreadable answer to {method} {path}: {error}"))
        })
    }

    async fn within(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<Answer, Error>>,
    ) -> Result<Answer, Error> {
        match tokio::time::timeout(limit, answer).await {
            Ok(result) => result,
            Err(_) => Err(self.pool.dialer().transport(format!("timed out after {limit:?}"))),
        }
    }
}

/// The headers `host` and `authorization` of requests to a server.
pub(super) fn identity(
    dialer: &Dialer,
    config: &Config,
) -> Result<(HeaderValue, Option<HeaderValue>), Error> {
    let header = |text: &str| {
        HeaderValue::from_str(text).map_err(|_| Error::Malformed {
            message: "the host or token has characters that a header cannot contain".into(),
        })
    };
    let mut authorization = config.token.as_ref().map(|token| header(&token.bearer())).transpose()?;
    authorization.iter_mut().for_each(|value| value.set_sensitive(true));
    Ok((header(dialer.authority())?, authorization))
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

fn built(request: request::Builder, body: Encoded) -> Result<Request<Encoded>, Error> {
    request
        .body(body)
        .map_err(|error| Error::Malformed { message: format!("cannot build an HTTP request: {error}") })
}

fn refusal(answer: &Answer, method: &Method, path: &str) -> Error {
    let asked = format!("{method} {path}");
    status::from_http(answer.status, status::sheds(&answer.headers), &answer.body, &asked)
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

#[cfg(test)]
mod tests;
