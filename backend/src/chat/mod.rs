//! An emulated server of a language model: OpenAI's chats, made-up words, and the pace of continuous batching.
//!
//! Experiments on first tokens need many replicas with known times on a small machine. [`Chat`] generates no text with a
//! model: `replica` runs the iterations of [`parm_workload::chat`] on a thread, and each stream gets its words when its
//! iteration ends. Answers are a pure function of the request (`Generation`), so that every replica gives the same bytes.
//!
//! A worker serves it as a [`Guest`] next to the Open Inference Protocol, on the same addresses.

mod replica;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use parm_durations::Real;
use parm_protocol::Error as Refusal;
use parm_transport::keys::{Access, Method, Route};
use parm_transport::server::{self, Guest, GuestBody, GuestFuture};
use parm_workload::Random;
use parm_workload::chat::{Costs, Tokens, word};
use prometheus::Registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use replica::{QUEUE, Replica, Stay};

use crate::{Error, Faults};

/// The routes, on the addresses of clients, and the access that each requires.
pub static ROUTES: &[Route] = &[
    Route::guest(Method::GET, "/health", Access::Everyone),
    Route::guest(Method::GET, "/v1/models", Access::AnyKey),
    Route::guest(Method::POST, "/v1/chat/completions", Access::Infer),
];

/// The number of the replica in fault plans.
const INSTANCE: usize = 0;

/// An emulated server of a language model, for experiments: OpenAI's chats on `server.http`, with made-up words.
///
/// An iteration takes `iteration_ms`, plus a 60th of it for each stream that gets a token, plus a 180th for each token of a
/// prompt that it reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Name of the emulated model. Default: none, the routes are off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Time of an iteration. Default 18.
    #[serde(with = "Real::<0, 60_000>")]
    pub iteration_ms: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { model: None, iteration_ms: Costs::default().base_ms }
    }
}

impl Config {
    fn costs(&self) -> Costs {
        let usual = Costs::default();
        let pace = self.iteration_ms / usual.base_ms;
        Costs {
            base_ms: self.iteration_ms,
            stream_ms: pace * usual.stream_ms,
            prompt_token_ms: pace * usual.prompt_token_ms,
            ..usual
        }
    }
}

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
            "/health" => Ok(document(StatusCode::OK, &json!({}))),
            "/v1/models" => Ok(document(StatusCode::OK, &models(&self.model))),
            // The server calls only for routes of the table.
            _ => self.generate(Generation::parse(&body, &self.model)?).await,
        }
    }

    async fn generate(&self, mut request: Generation) -> Result<Response<GuestBody>, Problem> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let faults = self.faults.as_deref();
        let (fails, wrong) = faults.map_or((false, false), |faults| faults.of_request(INSTANCE, number));
        if fails {
            return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "an injected fault"));
        }
        if wrong {
            request.seed = !request.seed;
        }
        let mut stay = self.replica.enter(request.tokens).ok_or_else(|| {
            let problem = format!("{QUEUE} requests wait already: send fewer at a time");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, problem)
        })?;
        if request.streams {
            return Ok(events(request, stay));
        }
        stay.ends().await.ok_or_else(Problem::gone)?;
        Ok(document(StatusCode::OK, &request.whole()))
    }
}

/// A response with this document.
fn document(status: StatusCode, document: &Value) -> Response<GuestBody> {
    let mut response = Response::new(Full::new(Bytes::from(document.to_string())).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response with an event for each token, as it appears. Dropping its body frees the place in the batch.
fn events(request: Generation, stay: Stay) -> Response<GuestBody> {
    // The tokens that were sent; `None` before the first event.
    let begun = Some((request, stay, None::<u32>));
    let frames = stream::unfold(begun, |state| async move {
        let (request, mut stay, sent) = state?;
        let mut bytes = String::new();
        let Some(sent) = sent else {
            event(&mut bytes, &request.opening());
            return Some((bytes, Some((request, stay, Some(0)))));
        };
        let Some(progress) = stay.beyond(sent).await else {
            event(&mut bytes, &Problem::gone().to_json());
            return Some((bytes, None));
        };
        (sent..progress.tokens).for_each(|number| event(&mut bytes, &request.token(number)));
        if !progress.done {
            return Some((bytes, Some((request, stay, Some(progress.tokens)))));
        }
        request.closing().iter().for_each(|document| event(&mut bytes, document));
        bytes.push_str("data: [DONE]\n\n");
        Some((bytes, None))
    });
    let frames = frames.map(|bytes| Ok::<_, Infallible>(Frame::data(Bytes::from(bytes))));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn event(events: &mut String, document: &Value) {
    events.push_str(&format!("data: {document}\n\n"));
}

/// A rejected request, in the shape of OpenAI's API.
#[derive(Debug)]
struct Problem {
    status: StatusCode,
    headers: Box<HeaderMap>,
    message: String,
}

impl Problem {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, headers: Box::default(), message: message.into() }
    }

    /// The replica ended.
    fn gone() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")
    }

    /// An error of the server that the request never reached.
    fn of(error: &Refusal) -> Self {
        if let Refusal::Unimplemented { what } = error {
            return Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("{what} is not supported"));
        }
        let (status, headers) = server::refusal(error);
        Self { headers: Box::new(headers), ..Self::new(status, error.to_string()) }
    }

    fn to_json(&self) -> Value {
        let kind = if self.status.is_server_error() { "server_error" } else { "invalid_request_error" };
        json!({ "error": { "message": self.message, "type": kind, "param": null, "code": null } })
    }

    fn into_response(self) -> Response<GuestBody> {
        let mut response = document(self.status, &self.to_json());
        response.headers_mut().extend(*self.headers);
        response
    }
}

/// The time of creation: constant, so that replicas give the same bytes.
const CREATED: u64 = 1_700_000_000;

/// Tokens of an answer without a limit.
const USUAL_OUTPUT: u32 = 16;

/// Most tokens of a prompt and its answer together: the longest prompts of public traces have 191,378.
const CONTEXT: u64 = 262_144;

/// A request for text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Generation {
    model: String,
    /// Seed of the words: the same for the same prompt.
    seed: u64,
    tokens: Tokens,
    /// Whether the request limits the tokens of its answer.
    limited: bool,
    streams: bool,
    /// Whether the stream ends with the usage.
    reports_usage: bool,
}

#[derive(Deserialize)]
struct ChatBody {
    messages: Vec<Message>,
    model: String,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: String,
}

impl Generation {
    /// Reads the body of a request for this model.
    fn parse(body: &[u8], known: &str) -> Result<Self, Problem> {
        let invalid = |message: String| Problem::new(StatusCode::BAD_REQUEST, message);
        let ChatBody { messages, model, max_tokens, max_completion_tokens, stream, stream_options } =
            serde_json::from_slice(body).map_err(|error| invalid(format!("invalid body: {error}")))?;
        if model != known {
            let message = format!("The model `{model:.100}` does not exist: use `{known}`");
            return Err(Problem::new(StatusCode::NOT_FOUND, message));
        }
        let (mut text, mut bytes) = (String::new(), 0);
        for Message { role, content } in &messages {
            bytes += content.len() as u64;
            [role, "\u{1}", content, "\u{1}"].into_iter().for_each(|part| text.push_str(part));
        }
        let limit = max_completion_tokens.or(max_tokens);
        let output = limit.unwrap_or(USUAL_OUTPUT);
        if messages.is_empty() || output == 0 {
            return Err(invalid("give one message and one token of max_tokens at least".into()));
        }
        // One token for four bytes, and at least one.
        let prompt = bytes.div_ceil(4).max(1);
        let fits = prompt + u64::from(output) <= CONTEXT;
        let prompt = u32::try_from(prompt).ok().filter(|_| fits).ok_or_else(|| {
            invalid(format!(
                "The context has {CONTEXT} tokens at most, and {prompt} of the prompt and {output} of the answer are \
                 more: shorten one of them"
            ))
        })?;
        let reports_usage = stream_options.and_then(|options| options.include_usage).unwrap_or(false);
        Ok(Self {
            model,
            seed: Random::named(0, &text).bits(),
            tokens: Tokens { prompt, output },
            limited: limit.is_some(),
            streams: stream.unwrap_or(false),
            reports_usage,
        })
    }

    /// The answer in one piece.
    fn whole(&self) -> Value {
        let text: String = (0..self.tokens.output).map(|number| self.word(number)).collect();
        let message = json!({ "role": "assistant", "content": text, "refusal": null });
        let choice = json!({ "index": 0, "message": message, "finish_reason": self.finish_reason() });
        self.document("chat.completion", json!([choice]), Some(self.usage()))
    }

    /// The first chunk of a stream, which has no content.
    fn opening(&self) -> Value {
        self.chunk(json!({ "role": "assistant", "content": "" }), Value::Null)
    }

    /// The chunk of one token.
    fn token(&self, number: u32) -> Value {
        self.chunk(json!({ "content": self.word(number) }), Value::Null)
    }

    /// The last chunk with a choice, and that with the usage if it is wanted.
    fn closing(&self) -> Vec<Value> {
        let last = self.chunk(json!({}), self.finish_reason().into());
        let usage = || self.document("chat.completion.chunk", json!([]), Some(self.usage()));
        [last].into_iter().chain(self.reports_usage.then(usage)).collect()
    }

    fn chunk(&self, delta: Value, finish: Value) -> Value {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        self.document("chat.completion.chunk", json!([choice]), self.reports_usage.then_some(Value::Null))
    }

    fn document(&self, object: &str, choices: Value, usage: Option<Value>) -> Value {
        let Tokens { prompt, output } = self.tokens;
        let id = Random::of(self.seed, [u64::from(prompt), u64::from(output)]).bits();
        let id = format!("chatcmpl-{id:016x}");
        let mut document = json!({
            "id": id, "object": object, "created": CREATED, "model": self.model, "choices": choices,
        });
        if let Some(usage) = usage {
            document["usage"] = usage;
        }
        document
    }

    fn usage(&self) -> Value {
        let Tokens { prompt, output } = self.tokens;
        json!({ "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output })
    }

    /// The token of this number.
    fn word(&self, number: u32) -> String {
        format!("{}{}", if number > 0 { " " } else { "" }, word(self.seed, number))
    }

    /// A model stops by itself unless the request limits its answer.
    fn finish_reason(&self) -> &'static str {
        if self.limited { "length" } else { "stop" }
    }
}

/// The list of models.
fn models(model: &str) -> Value {
    let one = json!({ "id": model, "object": "model", "created": CREATED, "owned_by": "parm" });
    json!({ "object": "list", "data": [one] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_costs_are_those_of_the_model() {
        assert_eq!(Config::default().costs(), Costs::default());
        assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
        for bad in ["chunk = 9", "iteration_ms = -1", "modle = 'm'"] {
            assert!(toml::from_str::<Config>(bad).is_err(), "{bad}");
        }
    }
}
