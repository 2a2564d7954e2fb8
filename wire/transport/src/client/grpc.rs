//! A client over gRPC, which sends raw tensors and reads raw or typed ones.

use std::future::Future;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::grpc::{convert, inference as proto};
use parm_protocol::rest::Encoded;
use parm_protocol::{
    Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, ServerMetadata,
};
use tokio::time::Instant;
use tonic::Status;

use super::dial::Dialer;
use super::pool::{Answer, Failure, Payload, Pool, authorization};
use super::{Config, deadline, status};
use crate::grpc::{self, Method};

/// Bytes of a large tensor in flight before the server must wait.
const WINDOW: u32 = 4 << 20;

/// A client over gRPC.
pub struct Grpc {
    pool: Pool,
    authorization: Option<HeaderValue>,
    /// Largest message of an answer.
    limit: usize,
    control_timeout: Duration,
    load_timeout: Duration,
}

impl Grpc {
    /// A client of the server that `dialer` reaches. Nothing is sent yet.
    pub(super) fn new(dialer: Dialer, config: &Config) -> Result<Self, Error> {
        Ok(Self {
            // The server limits the requests of a connection.
            pool: Pool::http2(dialer, WINDOW, usize::MAX)?,
            authorization: authorization(config)?,
            limit: config.max_body_bytes.get(),
            control_timeout: config.control_timeout,
            load_timeout: config.load_timeout,
        })
    }

    async fn send(&self, request: InferRequest, context: CallContext) -> Result<InferResponse, Error> {
        let mut request = self.request(&convert::request::encode(request))?;
        let headers = request.headers_mut();
        if let Some(Ok(parent)) = context.traceparent.map(HeaderValue::try_from) {
            headers.insert("traceparent", parent);
        }
        if let Some(deadline) = context.deadline {
            headers.insert("grpc-timeout", timeout(deadline.saturating_duration_since(Instant::now())));
        }
        let response = self.pool.send(&request, !context.once, self.pool.permit()?).await;
        let answer = self.read::<proto::ModelInferRequest>(response).await?;
        convert::response::decode(answer).map_err(|error| status::unreadable(self.peer(), &error))
    }

    /// Calls a method other than inference.
    async fn ask<M: Method>(&self, message: M) -> Result<M::Answer, Error> {
        let request = self.request(&message)?;
        let asked = async { self.read::<M>(self.pool.ask(&request).await).await };
        self.within(self.control_timeout, asked).await
    }

    /// Loads or unloads a model.
    async fn order<M: Method>(&self, message: M) -> Result<(), Error> {
        let request = self.request(&message)?;
        let permit = self.pool.permit()?;
        let ordered = async { self.read::<M>(self.pool.send(&request, false, permit).await).await };
        self.within(self.load_timeout, ordered).await.map(drop)
    }

    fn request<M: Method>(&self, message: &M) -> Result<Request<Payload>, Error> {
        let mut request = Request::post(M::PATH).header(header::CONTENT_TYPE, "application/grpc");
        if let Some(value) = &self.authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let malformed = |error: http::Error| Error::Malformed { message: error.to_string() };
        request.body(Payload::Whole(Encoded::from(grpc::frame(message)))).map_err(malformed)
    }

    async fn read<M: Method>(
        &self,
        response: Result<http::Response<Answer>, Failure>,
    ) -> Result<M::Answer, Error> {
        let explain = |failure: Failure| failure.at(self.pool.dialer(), self.limit);
        let (head, answer) = response.map_err(explain)?.into_parts();
        let (body, trailers) =
            answer.collect(self.limit.saturating_add(grpc::PREFIX)).await.map_err(explain)?;
        let of = |headers: &HeaderMap| Status::from_header_map(headers);
        // An answer without a message has its status in the head.
        match of(&head.headers).or_else(|| trailers.as_ref().and_then(of)) {
            Some(status) if status.code() != tonic::Code::Ok => Err(status::from_grpc(&status)),
            None if head.status != StatusCode::OK => {
                Err(status::from_http(head.status, status::sheds(&head.headers), &body, M::PATH))
            }
            None => Err(self.pool.dialer().transport("its answer ended without a gRPC status")),
            Some(_) => grpc::only(body)
                .map_err(|message| status::unreadable(self.peer(), &Error::Malformed { message })),
        }
    }

    async fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let late = |_| self.pool.dialer().transport(format!("timed out after {limit:?}"));
        tokio::time::timeout(limit, answer).await.map_err(late)?
    }
}

/// The header of a timeout: at most eight digits and a unit.
fn timeout(left: Duration) -> HeaderValue {
    let units = [(left.as_nanos(), 'n'), (left.as_micros(), 'u'), (left.as_millis(), 'm')];
    let fits = units.into_iter().find(|(count, _)| *count < 100_000_000);
    let (count, unit) = fits.unwrap_or((u128::from(left.as_secs().min(99_999_999)), 'S'));
    HeaderValue::try_from(format!("{count}{unit}")).expect("digits and a letter")
}

impl Client for Grpc {
    fn peer(&self) -> &str {
        self.pool.dialer().peer()
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        Box::pin(deadline::within(context.deadline, self.send(request, context)))
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(async { Ok(self.ask(proto::ServerReadyRequest {}).await?.ready) })
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        Box::pin(async { Ok(convert::server_from_message(self.ask(proto::ServerMetadataRequest {}).await?)) })
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        Box::pin(async {
            let (name, version) = named(model);
            self.ask(proto::ModelMetadataRequest { name, version }).await
        })
    }

    fn model_config<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelConfig, Error>> {
        Box::pin(async {
            let (name, version) = named(model);
            let answer = self.ask(proto::ModelConfigRequest { name, version }).await?;
            Ok(convert::config_from_message(answer.config.unwrap_or_default()))
        })
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        Box::pin(async { Ok(self.ask(proto::RepositoryIndexRequest::default()).await?.models) })
    }

    fn load_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        let model_name = name.into();
        Box::pin(self.order(proto::RepositoryModelLoadRequest { model_name, ..Default::default() }))
    }

    fn unload_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        let model_name = name.into();
        Box::pin(self.order(proto::RepositoryModelUnloadRequest { model_name, ..Default::default() }))
    }
}

fn named(model: &ModelRef) -> (String, String) {
    (model.name.clone(), model.version.clone().unwrap_or_default())
}
