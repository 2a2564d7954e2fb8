//! Instances inside the process, behind the interface of servers.
//!
//! A frontend treats them exactly like remote workers: one client per instance. Requests go through a queue and a
//! one-shot channel instead of a socket, and tensors are never copied.

use std::sync::Arc;
use std::time::Duration;

use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::{
    Error as Refusal, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef,
    ServerMetadata,
};
use tokio::time::Instant;

use crate::host::{Call, Host, Layout};
use crate::{Config, Error, Faults, Metrics, trace};

/// One instance. Instances that were started together share their models' weights if the engine supports it.
#[derive(Clone)]
pub struct Embedded {
    host: Arc<Host>,
    number: usize,
    peer: String,
}

impl Embedded {
    /// Starts the configured number of instances and loads their models. Blocks until they are loaded.
    pub fn start(config: Config, metrics: Metrics) -> Result<Vec<Self>, Error> {
        let host = Host::start(config, metrics, Layout::Separate)?;
        host.load_all()?;
        host.follow()?;
        let instance = |number| Self { host: host.clone(), number, peer: format!("embedded/{number}") };
        Ok((0..host.queues()).map(instance).collect())
    }

    /// Fault injection, shared by all instances that were started together; an error if the configuration forbids it.
    pub fn faults(&self) -> Result<&Faults, Error> {
        self.host.faults()
    }

    /// Models that are not loaded, with the reasons.
    pub fn absent(&self) -> Vec<ModelIndex> {
        self.host.absent()
    }

    /// Waits until all current requests are answered.
    pub async fn drain(&self, longest: Duration) -> Result<(), Error> {
        self.host.drain(longest).await
    }
}

impl Client for Embedded {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Refusal>> {
        let span = trace::infer(&request, &self.peer, context.traceparent.as_deref());
        let call = Call { request, arrived: Instant::now(), deadline: context.deadline, caller: None };
        Box::pin(trace::within(span, self.host.infer(self.number, call)))
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Refusal>> {
        Box::pin(std::future::ready(Ok(self.host.is_ready())))
    }

    /// An instance's thread cannot be stopped during a run, and takes no other job until its end.
    fn settled(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.host.settled(self.number))
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Refusal>> {
        Box::pin(std::future::ready(Ok(self.host.server_metadata())))
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Refusal>> {
        Box::pin(std::future::ready(self.host.model_metadata(model)))
    }

    fn model_config<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelConfig, Refusal>> {
        Box::pin(std::future::ready(self.host.model_config(model)))
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Refusal>> {
        Box::pin(std::future::ready(Ok(self.host.catalogue().index(false))))
    }

    /// Loads the model on all instances that were started together.
    fn load_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(self.host.load_model(name))
    }

    /// Unloads the model on all instances that were started together.
    fn unload_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(self.host.unload_model(name))
    }
}
