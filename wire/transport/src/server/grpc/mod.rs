//! gRPC on any HTTP/2 connection: the protocol's service, health checks and reflection.
//!
//! tonic only encodes and decodes messages. Routing, access control, deadlines and errors are ours, so that rejections
//! by tonic are reported and counted like all others.
//!
//! Reading order: `method` lists the methods, `call` runs one call, `infer`, `repository` and `health` answer,
//! `reflection` describes the services.

mod call;
mod health;
mod infer;
mod method;
mod reflection;
mod repository;
mod single;
#[cfg(test)]
mod tests;
mod timely;
pub(super) mod timeout;
mod watches;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use call::GrpcCall;
use hyper::body::Incoming;
use method::Method;
use parm_protocol::InferenceService;
use reflection::Reflection;
use tonic::body::Body;
use watches::Watches;

use super::auth::Reach;
use super::shared::Shared;
use crate::keys::Access;

type Response = http::Response<Body>;

/// The gRPC service around an inference service.
pub(super) fn service<S: InferenceService>(shared: Arc<Shared<S>>) -> GrpcService<S> {
    let reflection = Arc::new(Reflection::new());
    GrpcService { shared, reflection, reach: Reach::Open, watches: Watches::new() }
}

/// Answers gRPC requests; cheap to clone.
pub(super) struct GrpcService<S> {
    shared: Arc<Shared<S>>,
    reflection: Arc<Reflection>,
    reach: Reach,
    watches: Watches,
}

impl<S: InferenceService> GrpcService<S> {
    /// The service for a listener of this reach.
    pub(super) fn reached(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// The service on another connection.
    pub(super) fn on_connection(&self) -> Self {
        Self { watches: self.watches.on_connection(), ..self.clone() }
    }

    async fn answer(&self, request: http::Request<Incoming>) -> Response {
        // The caller is checked first: a client without a key cannot probe for methods.
        let found = Method::of(request.uri().path());
        let access = found.as_ref().map_or(Access::AnyKey, |(_, access)| *access);
        let call = match GrpcCall::begin(&self.shared, request, access, self.reach) {
            Ok(call) => call,
            Err(error) => return call::refuse(&self.shared, error),
        };
        let method = match found {
            Ok((method, _)) => method,
            Err(error) => return call::refuse(&self.shared, error),
        };
        match method {
            Method::ModelInfer => infer::answer(call).await,
            Method::Repository(method) => repository::answer(method, call).await,
            Method::Check => health::check(call).await,
            Method::Watch => health::watch(call, &self.watches).await,
            Method::Reflect(version) => self.reflection.answer(version, call.into_request()).await,
        }
    }
}

impl<S> Clone for GrpcService<S> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            reflection: self.reflection.clone(),
            reach: self.reach,
            watches: self.watches.clone(),
        }
    }
}

impl<S: InferenceService> tower::Service<http::Request<Incoming>> for GrpcService<S> {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Incoming>) -> Self::Future {
        let grpc = self.clone();
        Box::pin(async move { Ok(grpc.answer(request).await) })
    }
}
