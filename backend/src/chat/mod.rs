//! An emulated server of a language model: OpenAI's routes, made-up words, and the pace of continuous batching.
//!
//! Experiments on first tokens need many replicas with known times on a small machine. [`Chat`] generates no text with a
//! model: `replica` runs the iterations of [`parm_workload::chat`] on a thread, and each stream gets its words when its
//! iteration ends. Answers are a pure function of the request, so that every replica gives the same bytes.
//!
//! A worker serves it as a [`Guest`] next to the Open Inference Protocol, on the same addresses. Reading order: `request`
//! parses, `replica` gives tokens, `words` and `vectors` make their content, `answer` shapes it, `stream` sends it as it
//! appears, `list` sends embeddings, `problem` shapes errors.

mod access;
mod answer;
mod config;
mod list;
mod metrics;
mod problem;
mod replica;
mod request;
mod stream;
mod vectors;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use parm_protocol::Error as Refusal;
use parm_transport::keys::Route;
use parm_transport::server::{Guest, GuestBody, GuestFuture};
use parm_workload::chat::Tokens;
use prometheus::Registry;
use serde_json::Value;

pub use access::ROUTES;
pub use config::Config;
use metrics::ChatMetrics;
use problem::Problem;
use replica::{Replica, Stay};
use request::{Embedding, Generation};

use crate::{Error, Faults};

/// The number of the replica in fault plans.
const INSTANCE: usize = 0;

/// An emulated chat server. Cheap to clone.
#[derive(Clone)]
pub struct Chat {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    model: String,
    replica: Replica,
    faults: Option<Arc<Faults>>,
    /// Requests so far: their numbers name the draws of faults.
    requests: AtomicU64,
    metrics: ChatMetrics,
}

/// The faults of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFaults {
    pub(crate) fails: bool,
    pub(crate) wrong: bool,
}

impl Chat {
    /// Starts the server's replica; `None` if the settings name no model.
    pub fn start(
        config: &Config,
        faults: Option<Arc<Faults>>,
        registry: &Registry,
    ) -> Result<Option<Self>, Error> {
        let Some(model) = config.model.clone() else { return Ok(None) };
        let metrics = ChatMetrics::register(registry)?;
        let replica = Replica::start(config, faults.clone(), metrics.clone())?;
        let requests = AtomicU64::new(0);
        let inner = Inner { config: config.clone(), model, replica, faults, requests, metrics };
        Ok(Some(Self { inner: Arc::new(inner) }))
    }
}

impl Guest for Chat {
    fn routes(&self) -> &'static [Route] {
        ROUTES
    }

    fn answer(&self, head: Parts, body: Result<Bytes, Refusal>) -> GuestFuture {
        let inner = self.inner.clone();
        Box::pin(async move { inner.respond(&head, body).await.unwrap_or_else(Problem::into_response) })
    }
}

impl Inner {
    async fn respond(
        &self,
        head: &Parts,
        body: Result<Bytes, Refusal>,
    ) -> Result<Response<GuestBody>, Problem> {
        let body = body.map_err(|error| Problem::of(&error))?;
        match head.uri.path() {
            "/health" => Ok(answer::json(StatusCode::OK, &Value::Object(serde_json::Map::new()))),
            "/v1/models" => {
                Ok(answer::json(StatusCode::OK, &answer::models(&self.model, self.config.context.get())))
            }
            "/v1/embeddings" => self.embed(Embedding::parse(&body, &self.model)?).await,
            "/v1/completions" => self.generate(Generation::completion(&body, &self.config)?).await,
            // The server calls only for routes of the table.
            _ => self.generate(Generation::chat(&body, &self.config)?).await,
        }
    }

    async fn generate(&self, mut request: Generation) -> Result<Response<GuestBody>, Problem> {
        let tokens = Tokens { prompt: request.prompt_tokens, output: request.output_tokens };
        let (mut stay, faults) = self.enter(tokens)?;
        if faults.wrong {
            request.seed = !request.seed;
        }
        if request.streams {
            return Ok(stream::response(request, stay));
        }
        stay.ends().await.ok_or_else(Problem::gone)?;
        Ok(answer::json(StatusCode::OK, &request.whole()))
    }

    async fn embed(&self, request: Embedding) -> Result<Response<GuestBody>, Problem> {
        let (mut stay, faults) = self.enter(Tokens { prompt: request.tokens(), output: 0 })?;
        stay.ends().await.ok_or_else(Problem::gone)?;
        Ok(list::response(request, faults.wrong))
    }

    /// Queues a request, unless a fault rejects it or the queue is full.
    fn enter(&self, tokens: Tokens) -> Result<(Stay, RequestFaults), Problem> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let faults = self.faults.as_deref();
        let faults = faults.map_or_else(RequestFaults::default, |it| it.of_request(INSTANCE, number));
        if faults.fails {
            return Err(Problem::injected());
        }
        let stay = self.replica.enter(tokens).ok_or_else(|| {
            self.metrics.rejected.inc();
            Problem::full(self.config.queue.get())
        })?;
        Ok((stay, faults))
    }
}
