//! Models of another server: a run is a request to it.
//!
//! A worker with an upstream is an agent for a server that lacks our workers' features (Triton, MLServer). The agent
//! has the queue, the shares, tokens, faults and metrics; the server has the models. Its instances are tasks that await
//! the server on the runtime of the sockets, so that a request never changes threads, and tensors are passed on without
//! a copy. An instance with a thread (for batches or injected faults) has separate connections and a small runtime that
//! the thread drives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::validate::has_batch_dimension;
use parm_protocol::{
    Code, DataType, Error as Refusal, InferRequest, InferResponse, ModelMetadata, ModelRef, NamedTensor,
    Tensor, TensorMetadata,
};
use parm_transport::client::{self, Endpoint, Prefer, Scheme};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use super::{Declared, Extras, Model, RunRequest, Signature};
use crate::{Error, VersionPolicy};

/// Another server of the Open Inference Protocol, whose models this worker serves as its agent. Requests wait in the worker's
/// queue. `backend.instances` is the number of requests that the server gets at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Upstream {
    /// Address of the server: `http://HOST:PORT`, `unix:/PATH` or `grpc://HOST:PORT`. Default: none.
    #[schemars(with = "Option<String>")]
    pub url: Option<Endpoint>,
    /// Connections to the server. `http://` and `unix:` addresses always use HTTP.
    pub client: client::Config,
}

/// One version of a model, as described by the other server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    model: ModelRef,
    platform: String,
    signature: Signature,
    /// Maximum rows of a request; 0 if the first dimension is not a batch.
    most_rows: usize,
}

/// A connection to the other server, for one thread at a time.
pub(crate) struct Channel {
    upstream: Upstream,
    peer: String,
    client: Arc<dyn Client>,
    /// Always `Some` until the channel is dropped: dropping a runtime inside another must not block.
    runtime: Option<Runtime>,
}

struct Remote {
    channel: Channel,
    question: Arc<Question>,
    /// The client for tasks, which must not block on a runtime of their own.
    client: Option<Arc<dyn Client>>,
}

/// The request to the other server and the form of its answer.
struct Question {
    peer: String,
    description: Description,
    longest: Duration,
}

impl Upstream {
    /// Creates a client for tasks, on the current runtime. Sends nothing yet.
    pub(crate) fn client(&self) -> Result<Arc<dyn Client>, Error> {
        let url = self.address()?;
        let config = client::Config { transport: Prefer::Http, ..self.client.clone() };
        client::connect(url, &config).map_err(|error| Error::Upstream { peer: url.to_string(), error })
    }

    fn address(&self) -> Result<&Endpoint, Error> {
        let message = "backend.upstream.url is missing".into();
        let missing = Error::Upstream { peer: String::new(), error: Refusal::Malformed { message } };
        self.url.as_ref().ok_or(missing)
    }

    /// Opens a channel. Sends nothing yet.
    pub(crate) fn channel(&self) -> Result<Channel, Error> {
        let url = self.address()?;
        // HTTP/1 has no work between requests; HTTP/2 and frames answer pings.
        let mut builder = match url.scheme {
            Scheme::Http | Scheme::Upstream => Builder::new_current_thread(),
            Scheme::Grpc | Scheme::Frames | Scheme::UpstreamHttp2 => Builder::new_multi_thread(),
        };
        let runtime = builder.worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| Error::Thread { message: error.to_string() })?;
        let client = {
            let _inside = runtime.enter();
            self.client()?
        };
        Ok(Channel { upstream: self.clone(), peer: url.to_string(), client, runtime: Some(runtime) })
    }
}

impl Channel {
    /// Waits for an answer on this thread.
    fn ask<'a, T>(
        &'a self,
        question: impl FnOnce(&'a dyn Client) -> BoxFuture<'a, Result<T, Refusal>>,
    ) -> Result<T, Error> {
        let runtime =
            self.runtime.as_ref().ok_or_else(|| Error::Thread { message: "the runtime is gone".into() })?;
        // A future with a timeout must be created inside the runtime.
        let answer = runtime.block_on(async { question(&*self.client).await });
        answer.map_err(|error| Error::Upstream { peer: self.peer.clone(), error })
    }

    /// Names of the models to serve: the configured ones, or all if none is configured.
    pub(crate) fn models(&self, chosen: &[String]) -> Result<BTreeSet<String>, Error> {
        if !chosen.is_empty() {
            return Ok(chosen.iter().cloned().collect());
        }
        match self.ask(|client| client.repository_index()) {
            Err(Error::Upstream { error, .. }) if is_absent(&error) => {
                Err(refused(&self.peer, "it does not list its models: name them in backend.load".into()))
            }
            // Servers without states list only models that they serve.
            Ok(index) => {
                let ready = index.into_iter().filter(|model| matches!(&*model.state, "READY" | ""));
                Ok(ready.map(|model| model.name).collect())
            }
            Err(error) => Err(error),
        }
    }

    /// The versions of a model to serve, by number; unnumbered ones count as 1.
    pub(crate) fn describe(
        &self,
        name: &str,
        policy: VersionPolicy,
    ) -> Result<BTreeMap<u64, Description>, Error> {
        let newest = ModelRef::latest(name);
        let newest = self.ask(|client| client.model_metadata(&newest))?;
        let mut numbers: Vec<u64> =
            newest.versions.iter().filter_map(|version| version.parse().ok()).collect();
        numbers.sort_unstable();
        if policy == VersionPolicy::Latest {
            numbers.drain(..numbers.len().saturating_sub(1));
        }
        if numbers.is_empty() {
            return Ok(BTreeMap::from([(1, self.description(name, None)?)]));
        }
        let versions = numbers.into_iter();
        versions.map(|number| Ok((number, self.description(name, Some(number.to_string()))?))).collect()
    }

    fn description(&self, name: &str, version: Option<String>) -> Result<Description, Error> {
        let model = ModelRef { name: name.into(), version };
        let metadata = self.ask(|client| client.model_metadata(&model))?;
        let batched = if has_batch_dimension(&metadata) { usize::MAX } else { 0 };
        let most_rows = match self.ask(|client| client.model_config(&model)) {
            Ok(config) => usize::try_from(config.max_batch_size).unwrap_or(0).min(batched),
            // Without a configuration endpoint the dimensions show whether there is a batch.
            Err(Error::Upstream { error, .. }) if is_absent(&error) => batched,
            Err(error) => return Err(error),
        };
        let signature =
            signature(&metadata).map_err(|error| Error::Upstream { peer: self.peer.clone(), error })?;
        Ok(Description { model, platform: metadata.platform, signature, most_rows })
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn refused(peer: &str, message: String) -> Error {
    Error::Upstream { peer: peer.into(), error: Refusal::Unavailable { message } }
}

/// Whether the server lacks the endpoint.
fn is_absent(error: &Refusal) -> bool {
    matches!(error.code(), Code::Unimplemented | Code::NotFound)
}

fn signature(metadata: &ModelMetadata) -> Result<Signature, Refusal> {
    let declared = |tensors: &[TensorMetadata]| -> Result<Vec<Declared>, Refusal> {
        let declared = tensors.iter().map(|tensor| {
            let datatype: DataType = tensor.datatype.parse()?;
            Ok(Declared { name: tensor.name.clone(), datatype, shape: tensor.shape.clone() })
        });
        declared.collect()
    };
    Ok(Signature { inputs: declared(&metadata.inputs)?, outputs: declared(&metadata.outputs)? })
}

impl Description {
    /// Its platform, as named by the other server.
    pub(crate) fn platform(&self) -> &str {
        &self.platform
    }

    /// The model, with a separate channel, and with `client` for tasks. Requests time out after `longest`.
    pub(crate) fn model(
        &self,
        upstream: &Upstream,
        longest: Duration,
        client: Option<&Arc<dyn Client>>,
    ) -> Result<Box<dyn Model>, Error> {
        let channel = upstream.channel()?;
        let question = Question { peer: channel.peer.clone(), description: self.clone(), longest };
        Ok(Box::new(Remote { channel, question: Arc::new(question), client: client.cloned() }))
    }
}

impl Question {
    fn request(&self, inputs: &[Tensor], extras: &Extras) -> InferRequest {
        let named = self.description.signature.inputs.iter().zip(inputs).enumerate();
        let named = named.map(|(at, (declared, tensor))| NamedTensor {
            parameters: extras.inputs.get(at).cloned().unwrap_or_default(),
            ..NamedTensor::new(&*declared.name, tensor.clone())
        });
        InferRequest {
            model: self.description.model.clone(),
            id: String::new(),
            parameters: extras.parameters.clone(),
            inputs: named.collect(),
            outputs: Vec::new(),
        }
    }

    fn context(&self, deadline: Instant) -> CallContext {
        let deadline = deadline.min(Instant::now() + self.longest);
        CallContext { deadline: Some(deadline), ..CallContext::default() }
    }

    /// The answer's tensors in declared order.
    fn outputs(&self, answer: InferResponse) -> Result<Vec<Tensor>, Error> {
        let mut outputs = answer.outputs;
        let output = |wanted: &Declared| {
            let place = outputs.iter().position(|output| output.name == wanted.name);
            let place = place
                .ok_or_else(|| refused(&self.peer, format!("its answer lacks output '{}'", wanted.name)))?;
            Ok(outputs.swap_remove(place).tensor)
        };
        self.description.signature.outputs.iter().map(output).collect()
    }
}

impl Model for Remote {
    fn signature(&self) -> &Signature {
        &self.question.description.signature
    }

    fn most_rows(&self) -> usize {
        self.question.description.most_rows
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let deadline = Instant::now() + self.question.longest;
        self.run_for(RunRequest { inputs, extras: &Extras::default(), deadline })
    }

    fn run_for(&mut self, asked: RunRequest<'_>) -> Result<Vec<Tensor>, Error> {
        let request = self.question.request(asked.inputs, asked.extras);
        let context = self.question.context(asked.deadline);
        self.question.outputs(self.channel.ask(|client| client.infer(request, context))?)
    }

    fn declares_rows(&self) -> bool {
        true
    }

    fn is_steady(&self) -> bool {
        false
    }

    fn ask(&self, asked: RunRequest<'_>) -> Option<BoxFuture<'static, Result<Vec<Tensor>, Error>>> {
        let (client, question) = (self.client.clone()?, self.question.clone());
        let request = question.request(asked.inputs, asked.extras);
        let context = question.context(asked.deadline);
        Some(Box::pin(async move {
            let answer = client.infer(request, context).await;
            let answer = answer.map_err(|error| Error::Upstream { peer: question.peer.clone(), error })?;
            question.outputs(answer)
        }))
    }

    fn replica(&self) -> Option<Box<dyn Model>> {
        let Question { description, longest, .. } = &*self.question;
        description.model(&self.channel.upstream, *longest, self.client.as_ref()).ok()
    }
}
