//! A client over gRPC, which sends raw tensors and reads raw or typed ones.

use http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode, header, request};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::grpc::{convert, inference as proto};
use parm_protocol::rest::Encoded;
use parm_protocol::{
    Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, ServerMetadata,
};
use tokio::time::Instant;
use tonic::Status;

use super::dial::Dialer;
use super::pool::Pool;
use super::requests::{Reply, Requests, built, by_deadline};
use super::{Config, status};
use crate::grpc::{self, Method};

/// Bytes of a large tensor in flight before the server must wait.
const WINDOW: u32 = 4 << 20;

pub(super) struct Grpc(Requests);

impl Grpc {
    /// A client of the server that `dialer` reaches. Nothing is sent yet.
    pub(super) fn new(dialer: Dialer, config: &Config) -> Result<Self, Error> {
        // The server limits the requests of a connection.
        Ok(Self(Requests::new(Pool::http2(dialer, WINDOW, usize::MAX)?, config)?))
    }

    async fn send(&self, request: InferRequest, context: CallContext) -> Result<InferResponse, Error> {
        let message = convert::request_to_message(request);
        let mut builder = self.request::<proto::ModelInferRequest>();
        if let Some(Ok(parent)) = context.traceparent.map(HeaderValue::try_from) {
            builder = builder.header("traceparent", parent);
        }
        if let Some(deadline) = context.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            builder = builder.header(grpc::TIMEOUT, grpc::timeout_text(left));
        }
        let request = built(builder, Encoded::from(grpc::frame(&message)))?;
        let answer = self.read::<proto::ModelInferRequest>(self.0.infer(request, context.once).await?)?;
        convert::response_from_message(answer).map_err(|error| status::unreadable(self.peer(), &error))
    }

    /// Calls a method other than inference.
    async fn ask<M: Method>(&self, message: M) -> Result<M::Answer, Error> {
        let request = built(self.request::<M>(), Encoded::from(grpc::frame(&message)))?;
        self.read::<M>(self.0.ask(request).await?)
    }

    async fn order<M: Method>(&self, message: M) -> Result<(), Error> {
        let request = built(self.request::<M>(), Encoded::from(grpc::frame(&message)))?;
        self.read::<M>(self.0.order(request, false).await?).map(drop)
    }

    fn request<M: Method>(&self) -> request::Builder {
        self.0.request(HttpMethod::POST, M::PATH).header(header::CONTENT_TYPE, "application/grpc")
    }

    fn read<M: Method>(&self, reply: Reply) -> Result<M::Answer, Error> {
        let Reply { status, headers, body, trailers } = reply;
        let of = |headers: &HeaderMap| Status::from_header_map(headers);
        // An answer without a message has its status in the head.
        match of(&headers).or_else(|| trailers.as_ref().and_then(of)) {
            Some(status) if status.code() != tonic::Code::Ok => Err(status::from_grpc(&status)),
            None if status != StatusCode::OK => {
                Err(status::from_http(status, status::sheds(&headers), &body, M::PATH))
            }
            None => Err(self.0.pool.dialer().transport("its answer ended without a gRPC status")),
            Some(_) => grpc::only(body)
                .map_err(|message| status::unreadable(self.peer(), &Error::Malformed { message })),
        }
    }
}

impl Client for Grpc {
    fn peer(&self) -> &str {
        self.0.peer()
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        Box::pin(by_deadline(context.deadline, self.send(request, context)))
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(async { Ok(self.ask(proto::ServerReadyRequest {}).await?.ready) })
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        Box::pin(async { Ok(convert::server_from_message(self.ask(proto::ServerMetadataRequest {}).await?)) })
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        let (name, version) = named(model);
        Box::pin(self.ask(proto::ModelMetadataRequest { name, version }))
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
