//! An emulated server of a language model: OpenAI's chats, made-up words, and the pace of continuous batching.
//!
//! Experiments on first tokens need many replicas with known times on a small machine. [`Chat`] generates no text with a
//! model: `replica` runs the iterations of [`parm_workload::chat`] on a thread, and each stream gets its words when its
//! iteration ends. Answers are a pure function of the request, so that every replica gives the same bytes.
//!
//! A worker serves it as a [`Guest`] next to the Open Inference Protocol, on the same addresses. Reading order: `request`
//! parses, `replica` gives tokens, `answer` shapes them, `stream` sends them as they appear, `problem` shapes errors.

mod answer;
mod config;
mod metrics;
mod problem;
mod replica;
mod request;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use parm_protocol::Error as Refusal;
use parm_transport::keys::{Access, Method, Route};
use parm_transport::server::{Guest, GuestBody, GuestFuture};
use prometheus::Registry;
use serde_json::json;

pub use config::Config;
use problem::Problem;
use replica::Replica;
use request::Generation;

use crate::{Error, Faults};

/// The routes, on the addresses of clients, and the access that each requires.
pub static ROUTES: &[Route] = &[
    Route::guest(Method::GET, "/health", Access::Everyone),
    Route::guest(Method::GET, "/v1/models", Access::AnyKey),
    Route::guest(Method::POST, "/v1/chat/completions", Access::Infer),
];

/// The number of the replica in fault plans.
const INSTANCE: usize = 0;

/// An emulated chat server. Cheap to clone.
#[derive(Clone)]
pub struct Chat {
    inner: Arc<Inner>,
}

struct Inner {
    model: String,
    replica: Replica,
    faults: Option<Arc<Faults>>,
    /// Requests so far: their numbers name the draws of faults.
    requests: AtomicU64,
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
        let replica = Replica::start(config.costs(), faults.clone(), registry)?;
        let inner = Inner { model, replica, faults, requests: AtomicU64::new(0) };
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
            "/health" => Ok(answer::json(StatusCode::OK, &json!({}))),
            "/v1/models" => Ok(answer::json(StatusCode::OK, &answer::models(&self.model))),
            // The server calls only for routes of the table.
            _ => self.generate(Generation::parse(&body, &self.model)?).await,
        }
    }

    async fn generate(&self, mut request: Generation) -> Result<Response<GuestBody>, Problem> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let faults = self.faults.as_deref();
        let faults = faults.map_or_else(RequestFaults::default, |it| it.of_request(INSTANCE, number));
        if faults.fails {
            return Err(Problem::failed(StatusCode::INTERNAL_SERVER_ERROR, "an injected fault"));
        }
        if faults.wrong {
            request.seed = !request.seed;
        }
        let mut stay = self.replica.enter(request.tokens).ok_or_else(|| {
            let problem = format!("{} requests wait already: send fewer at a time", replica::QUEUE);
            Problem::failed(StatusCode::SERVICE_UNAVAILABLE, problem)
        })?;
        if request.streams {
            return Ok(stream::response(request, stay));
        }
        stay.ends().await.ok_or_else(Problem::gone)?;
        Ok(answer::json(StatusCode::OK, &request.whole()))
    }
}
