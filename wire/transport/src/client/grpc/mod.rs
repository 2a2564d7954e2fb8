//! A client over gRPC, which sends raw tensors and reads raw or typed ones. Only this file uses tonic.

use std::future::Future;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parm_protocol::client::{BoxFuture, CallContext, Client};
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use super::dial::Dialer;

use parm_protocol::grpc::{convert, inference as proto};
use parm_protocol::{
    Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, ServerMetadata,
};

use crate::grpc::inference::grpc_inference_service_client::GrpcInferenceServiceClient;

use super::{Config, deadline, status};

/// A client over gRPC.
pub struct Grpc {
    client: GrpcInferenceServiceClient<Channel>,
    dialer: Dialer,
    authorization: Option<MetadataValue<Ascii>>,
    control_timeout: Duration,
    load_timeout: Duration,
}

impl Grpc {
    /// A client of the server that `dialer` reaches. Nothing is sent yet.
    pub(super) fn new(dialer: &Dialer, config: &Config) -> Result<Self, Error> {
        let wrong =
            |_| Error::Malformed { message: "the token has characters that a header cannot contain".into() };
        let authorization = match &config.token {
            None => None,
            Some(token) => {
                let mut value = MetadataValue::try_from(token.bearer()).map_err(wrong)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let no_host = |error: &dyn std::fmt::Display| Error::Malformed {
            message: format!("'{}' is not a host: {error}", dialer.peer()),
        };
        // The connector handles TLS. The request's scheme must match, or proxies reject it.
        let origin = format!("{}://{}", dialer.scheme(), dialer.authority());
        let endpoint = Endpoint::from_shared(format!("http://{}", dialer.authority()))
            .map_err(|error| no_host(&error))?
            .origin(origin.parse().map_err(|error: http::uri::InvalidUri| no_host(&error))?)
            .http2_keep_alive_interval(config.frames.ping_interval)
            .keep_alive_timeout(config.frames.ping_timeout)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        let connector = {
            let dialer = dialer.clone();
            tower::service_fn(move |_| {
                let dialer = dialer.clone();
                async move { dialer.dial().await.map(TokioIo::new) }
            })
        };
        let client = GrpcInferenceServiceClient::new(endpoint.connect_with_connector_lazy(connector))
            .max_decoding_message_size(config.max_body_bytes.get())
            .max_encoding_message_size(usize::MAX);
        Ok(Self {
            client,
            dialer: dialer.clone(),
            authorization,
            control_timeout: config.control_timeout,
            load_timeout: config.load_timeout,
        })
    }

    async fn send(&self, request: InferRequest, context: CallContext) -> Result<InferResponse, Error> {
        let encoded = convert::request::encode(request);
        let parent = context.traceparent.and_then(|value| MetadataValue::try_from(value).ok());
        let mut again = TRIES;
        let answer = loop {
            let mut message = self.message(encoded.clone());
            if let Some(deadline) = context.deadline {
                message.set_timeout(deadline.saturating_duration_since(Instant::now()));
            }
            if let Some(value) = &parent {
                message.metadata_mut().insert("traceparent", value.clone());
            }
            again -= 1;
            match self.client.clone().model_infer(message).await {
                Ok(answer) => break answer,
                Err(status) if again > 0 && status::was_not_read(&status) => {}
                Err(status) => return Err(self.explain(&status)),
            }
        };
        convert::response::decode(answer.into_inner())
            .map_err(|error| status::unreadable(self.dialer.peer(), &error))
    }

    fn message<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(value) = &self.authorization {
            request.metadata_mut().insert("authorization", value.clone());
        }
        request
    }

    /// Calls a method other than inference.
    async fn ask<T>(&self, answer: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Error> {
        self.ask_within(self.control_timeout, answer).await
    }

    async fn ask_within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer.map(Response::into_inner).map_err(|status| self.explain(&status)),
            Err(_) => Err(self.dialer.transport(format!("timed out after {limit:?}"))),
        }
    }

    fn explain(&self, status: &Status) -> Error {
        status::from_grpc(status, self.dialer.peer())
    }
}

/// Window of a large tensor in flight before the server must wait.
const WINDOW: u32 = 4 << 20;

/// A connection may close just when a request is given to it, and so may the next one.
const TRIES: u32 = 3;

impl Client for Grpc {
    fn peer(&self) -> &str {
        self.dialer.peer()
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        Box::pin(deadline::within(context.deadline, self.send(request, context)))
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(async {
            let ask = || async {
                let request = self.message(proto::ServerReadyRequest {});
                self.ask(self.client.clone().server_ready(request)).await
            };
            let began = Instant::now();
            let answer = match ask().await {
                // Servers end connections by age, which says nothing about them.
                Err(Error::Transport { .. }) if began.elapsed() < self.control_timeout / 2 => ask().await,
                answer => answer,
            };
            Ok(answer?.ready)
        })
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        Box::pin(async {
            let request = self.message(proto::ServerMetadataRequest {});
            let answer = self.ask(self.client.clone().server_metadata(request)).await?;
            Ok(convert::server_from_message(answer))
        })
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        Box::pin(async {
            let (name, version) = named(model);
            let request = self.message(proto::ModelMetadataRequest { name, version });
            let answer = self.ask(self.client.clone().model_metadata(request)).await?;
            Ok(convert::metadata_from_message(answer))
        })
    }

    fn model_config<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelConfig, Error>> {
        Box::pin(async {
            let (name, version) = named(model);
            let request = self.message(proto::ModelConfigRequest { name, version });
            let config =
                self.ask(self.client.clone().model_config(request)).await?.config.unwrap_or_default();
            Ok(convert::config_from_message(config))
        })
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        Box::pin(async {
            let request = self.message(proto::RepositoryIndexRequest::default());
            let answer = self.ask(self.client.clone().repository_index(request)).await?;
            Ok(answer.models.into_iter().map(convert::index_from_message).collect())
        })
    }

    fn load_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let asked = proto::RepositoryModelLoadRequest { model_name: name.into(), ..Default::default() };
            let (mut client, request) = (self.client.clone(), self.message(asked));
            self.ask_within(self.load_timeout, client.repository_model_load(request)).await.map(drop)
        })
    }

    fn unload_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let asked = proto::RepositoryModelUnloadRequest { model_name: name.into(), ..Default::default() };
            let (mut client, request) = (self.client.clone(), self.message(asked));
            self.ask_within(self.load_timeout, client.repository_model_unload(request)).await.map(drop)
        })
    }
}

fn named(model: &ModelRef) -> (String, String) {
    (model.name.clone(), model.version.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests;
