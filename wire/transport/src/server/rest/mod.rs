//! The REST endpoints. Handlers parse, call the service, and map the error.

mod infer;
mod texts;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::{Body as _, Incoming};
use parm_protocol::texts::{Embed, Embeddings, Rerank, ScoreDocuments};
use parm_protocol::{Error, InferResponse, InferenceService, ModelRef, Parameter, Transport, rest as codec};
use percent_encoding::percent_decode_str;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::shared::Shared;
use super::upgrade::upgrade;
use super::{body, status};
use crate::frames;
use crate::keys::{self, Route, Visit};
use crate::listening::{Connection, Lent};
use crate::routes::Endpoint;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const OUTCOME: HeaderName = HeaderName::from_static("parm-outcome");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

const OPENAPI: &str = include_str!("openapi.json");

type Incomplete = Request<Lent<Incoming>>;

/// The body of `POST /v2/repository/index`; may be empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Question {
    ready: bool,
}

/// The body of a load; may be empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LoadBody {
    parameters: BTreeMap<String, IgnoredAny>,
}

pub(super) async fn answer<S: InferenceService>(
    shared: &Arc<Shared<S>>,
    route: &'static Route,
    request: Incomplete,
    visit: &Visit,
    connection: Connection,
) -> Response {
    let is_head = request.method() == Method::HEAD;
    let rejected = |error| problem(&shared.rejected(error, Transport::Http));
    let model = match target(route, request.uri().path()) {
        Ok(model) => model,
        Err(error) => return rejected(error),
    };
    let service = &shared.service;
    let key = || visit.caller().name();
    let response = match (route.endpoint, model) {
        (Endpoint::Infer, Some(model)) => infer::answer(shared, model, request, key()).await,
        (Endpoint::Live, _) => empty(service.is_live()),
        (Endpoint::Ready, _) => empty(service.is_ready()),
        (Endpoint::ModelReady, Some(model)) => match service.is_model_ready(&model) {
            Ok(ready) => empty(ready),
            Err(error) => problem(&error),
        },
        (Endpoint::Server, _) => {
            let mut metadata = service.server_metadata();
            metadata.extensions.push(frames::EXTENSION.to_owned());
            told(Ok(metadata))
        }
        (Endpoint::Models, _) => told(names(&**service)),
        (Endpoint::Metadata, Some(model)) => told(service.model_metadata(&model)),
        (Endpoint::ModelConfig, Some(model)) => told(service.model_config(&model)),
        (Endpoint::Statistics, model) => {
            let statistics = service.statistics(model.as_ref());
            told(statistics.map(|statistics| json!({ "model_stats": statistics })))
        }
        (Endpoint::Index, _) => match read::<Question, S>(request, shared).await {
            Ok(Question { ready }) => told(service.repository_index(ready)),
            Err(error) => rejected(error),
        },
        (Endpoint::Load, Some(model)) => {
            let asked = read::<LoadBody, S>(request, shared).await;
            let allowed =
                asked.and_then(|asked| reject_replacements(asked.parameters.keys().map(String::as_str)));
            match allowed {
                Ok(()) => told(service.load_model(&model.name).await.map(|()| json!({}))),
                Err(error) => rejected(error),
            }
        }
        (Endpoint::Unload, Some(model)) => told(service.unload_model(&model.name).await.map(|()| json!({}))),
        (Endpoint::Frames, _) => {
            let (mut request, caller) = (request, visit.caller().clone());
            upgrade(shared, &mut request, caller, connection.taken_over()).map(|()| Body::empty())
        }
        (Endpoint::OpenApi, _) => json(StatusCode::OK, Bytes::from_static(OPENAPI.as_bytes())),
        (Endpoint::TextModels, _) => texts::models(shared),
        (Endpoint::Embeddings, _) => texts::exchange::<S, Embeddings>(shared, request, key()).await,
        (Endpoint::ScoreDocuments, _) => texts::exchange::<S, ScoreDocuments>(shared, request, key()).await,
        (Endpoint::Embed, _) => texts::exchange::<S, Embed>(shared, request, key()).await,
        (Endpoint::Rerank, _) => texts::exchange::<S, Rerank>(shared, request, key()).await,
        // Rows of other tables.
        _ => rejected(Error::UnknownPath { path: route.path.to_owned() }),
    };
    if is_head { without_body(response) } else { response }
}

fn target(route: &Route, path: &str) -> Result<Option<ModelRef>, Error> {
    let part = |name: &str| {
        let segment = route.segment(name, path).map(|segment| percent_decode_str(segment).decode_utf8());
        segment.transpose().map_err(|_| Error::Malformed {
            message: format!("the {name} in the path is not UTF-8: escape it as text"),
        })
    };
    let version = part("version")?.map(Into::into);
    Ok(part("model")?.map(|name| ModelRef { name: name.into(), version }))
}

fn names<S: InferenceService>(service: &S) -> Result<serde_json::Value, Error> {
    let mut models: Vec<String> =
        service.repository_index(false)?.into_iter().map(|entry| entry.name).collect();
    models.sort();
    models.dedup();
    Ok(json!({ "models": models }))
}

/// Reads a body that may be empty.
async fn read<T: Default + DeserializeOwned, S: InferenceService>(
    request: Incomplete,
    shared: &Shared<S>,
) -> Result<T, Error> {
    let body = body::read(request, shared).await?.bytes;
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&body).map_err(|error| Error::malformed(error.to_string()))
}

/// A response whose status says it all.
fn empty(good: bool) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    response
}

fn without_body(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    }
    response.map(|_| Body::empty())
}

/// W3C `traceparent`, if the client sent one.
pub(super) fn traceparent(headers: &HeaderMap) -> Option<String> {
    headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The header that says how an answer was obtained, for proxies that count responses without reading them.
pub(super) fn outcome(response: &InferResponse) -> Option<(HeaderName, HeaderValue)> {
    let outcome = response.parameters.get("parm_outcome").and_then(Parameter::as_str)?;
    Some((OUTCOME, HeaderValue::try_from(outcome).ok()?))
}

/// Rejects a load with a parameter that replaces the model's configuration or files, as Triton takes them, because the repository of each server says what is loaded.
pub(super) fn reject_replacements<'a>(mut parameters: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let replaces = |name: &&str| *name == "config" || name.starts_with("file:");
    parameters.find(replaces).map_or(Ok(()), |name| {
        let name: String = name.chars().take(100).collect();
        let message = format!(
            "a load cannot replace '{name}': change the model in its repository, and load it without this parameter"
        );
        Err(Error::Malformed { message })
    })
}

pub(super) fn problem(error: &Error) -> Response {
    let mut response = json(status::of(error.code()).0, codec::encode_error(error));
    response.headers_mut().extend(status::headers(error));
    response
}

/// A JSON response, or that of the error.
fn told<T: Serialize>(outcome: Result<T, Error>) -> Response {
    let encoded = outcome.and_then(|value| {
        serde_json::to_vec(&value).map_err(|error| Error::Internal { message: error.to_string() })
    });
    match encoded {
        Ok(body) => json(StatusCode::OK, body.into()),
        Err(error) => problem(&error),
    }
}

pub(super) fn json(status: StatusCode, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Rejects an unknown path, or a method that a path does not support.
pub(super) fn not_served<S: InferenceService>(shared: &Shared<S>, method: &Method, path: &str) -> Response {
    let shown = path.chars().take(200).collect::<String>();
    if keys::methods(keys::REST, path).next().is_none() {
        return problem(&shared.rejected(Error::UnknownPath { path: shown }, Transport::Http));
    }
    let error =
        Error::Malformed { message: format!("{shown} does not support {method}: see /v2/openapi.json") };
    let error = shared.rejected(error, Transport::Http);
    json(StatusCode::METHOD_NOT_ALLOWED, codec::encode_error(&error))
}
