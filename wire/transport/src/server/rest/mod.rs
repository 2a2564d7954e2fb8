//! The REST endpoints: one file per group. Handlers parse, call the service, and map the error.

pub(super) mod body;
mod call;
mod forward;
mod frames;
mod health;
mod infer;
mod inflate;
mod models;
mod openapi;
mod repository;
mod texts;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use parm_protocol::texts::{Embed, Embeddings, Rerank, ScoreDocuments};
use parm_protocol::{
    Error, InferResponse, InferenceService, ModelRef, Parameter, Transport, is_grpc, rest as codec,
};
use serde::{Deserialize, Serialize};

use super::auth::Reach;
use super::routes::Routes;
use super::shared::Shared;
use super::status;
use crate::keys::{self, Access, Caller, Visit};

pub(super) use forward::{Lasting, forward};

pub(super) const CLOSE: HeaderValue = HeaderValue::from_static("close");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const OUTCOME: HeaderName = HeaderName::from_static("parm-outcome");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

type Served<S> = State<Arc<Shared<S>>>;

/// Every route. `openapi.json` describes them and [`REST`](keys::REST) has the access that they require; tests compare the
/// three.
fn routes<S: InferenceService>() -> Routes<Arc<Shared<S>>> {
    const GET: Method = Method::GET;
    const POST: Method = Method::POST;
    Routes::default()
        .on(GET, "/v2", models::server::<S>)
        .on(GET, "/v2/", models::server::<S>)
        .on(GET, "/v2/openapi.json", openapi::document)
        .on(GET, "/v2/health/live", health::live::<S>)
        .on(GET, "/v2/health/ready", health::ready::<S>)
        .on(GET, "/v2/models", models::list::<S>)
        .on(GET, "/v2/models/stats", models::all_statistics::<S>)
        .on(GET, "/v2/models/{model}", models::metadata::<S>)
        .on(GET, "/v2/models/{model}/ready", models::ready::<S>)
        .on(GET, "/v2/models/{model}/config", models::config::<S>)
        .on(GET, "/v2/models/{model}/stats", models::statistics::<S>)
        .on(POST, "/v2/models/{model}/infer", infer::infer::<S>)
        .on(GET, "/v2/models/{model}/versions/{version}", models::metadata::<S>)
        .on(GET, "/v2/models/{model}/versions/{version}/ready", models::ready::<S>)
        .on(GET, "/v2/models/{model}/versions/{version}/config", models::config::<S>)
        .on(GET, "/v2/models/{model}/versions/{version}/stats", models::statistics::<S>)
        .on(POST, "/v2/models/{model}/versions/{version}/infer", infer::infer::<S>)
        .on(POST, "/v2/repository/index", repository::index::<S>)
        .on(POST, "/v2/repository/models/{model}/load", repository::load::<S>)
        .on(POST, "/v2/repository/models/{model}/unload", repository::unload::<S>)
        .on(GET, "/v2/frames", frames::upgrade::<S>)
        .on(GET, "/v1/models", texts::models::<S>)
        .on(POST, "/v1/embeddings", texts::exchange::<S, Embeddings>)
        .on(POST, "/v1/rerank", texts::exchange::<S, ScoreDocuments>)
        .on(POST, "/embed", texts::exchange::<S, Embed>)
        .on(POST, "/rerank", texts::exchange::<S, Rerank>)
}

pub(super) fn router<S: InferenceService>(shared: Arc<Shared<S>>) -> Router {
    routes().router().with_state(shared)
}

/// Admits a request if it is served and its caller has the required access. The access comes from the table, so that no
/// handler can forget to check it. Clients without a key cannot probe for paths.
pub(super) fn admit<S: InferenceService, B>(
    shared: &Shared<S>,
    request: &http::Request<B>,
    reach: Reach,
) -> Result<Visit, Box<Response>> {
    let (method, path) = (request.method(), request.uri().path());
    let forwards = shared.service.forwards(path);
    let access = if forwards {
        Some(Access::Infer)
    } else {
        keys::find(keys::REST, method, path).map(|route| route.access)
    };
    let visit = shared.guard.check(request.headers(), access.unwrap_or(Access::AnyKey), reach);
    let visit = visit.map_err(|error| {
        let (form, transport) = if forwards {
            (forward::ErrorForm::of(path, request.headers()), transport_of(request.headers()))
        } else {
            (forward::ErrorForm::Protocol, Transport::Http)
        };
        Box::new(forward::problem(shared, &shared.rejected(error, transport), form))
    })?;
    match access {
        None => Err(Box::new(not_served(shared, method, path))),
        Some(Access::Control) => {
            shared.changed(method, path, &visit);
            Ok(visit)
        }
        Some(_) => Ok(visit),
    }
}

#[derive(Debug, Deserialize)]
struct Target {
    model: String,
    #[serde(default)]
    version: Option<String>,
}

/// Axum would reject a path that is not text with its own message, and uncounted.
impl<S: InferenceService> FromRequestParts<Arc<Shared<S>>> for Target {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared<S>>) -> Result<Self, Response> {
        let target = Path::<Target>::from_request_parts(parts, shared).await;
        target.map(|Path(target)| target).map_err(|rejection| {
            let error = Error::Malformed { message: rejection.body_text() };
            problem(shared, &shared.rejected(error, Transport::Http))
        })
    }
}

impl From<Target> for ModelRef {
    fn from(Target { model, version }: Target) -> Self {
        ModelRef { name: model, version }
    }
}

/// The transport of a request that is for upstream servers, or REST.
fn transport_of(headers: &HeaderMap) -> Transport {
    if is_grpc(headers) { Transport::Grpc } else { Transport::Http }
}

/// W3C `traceparent`, if the client sent one.
fn traceparent(headers: &HeaderMap) -> Option<String> {
    headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The name of the client's key.
fn key(request: &Request) -> Option<Arc<str>> {
    request.extensions().get::<Caller>().and_then(Caller::name)
}

/// Says in a header how an answer was obtained.
fn tell_outcome(headers: &mut HeaderMap, response: &InferResponse) {
    if let Some(outcome) = response.parameters.get("parm_outcome").and_then(Parameter::as_str)
        && let Ok(outcome) = HeaderValue::from_str(outcome)
    {
        headers.insert(OUTCOME, outcome);
    }
}

pub(super) fn problem<S: InferenceService>(shared: &Shared<S>, error: &Error) -> Response {
    let mut response = json(status::of(error.code()).0, codec::encode_error(error));
    response.headers_mut().extend(status::headers(error, shared.config.retry_after));
    response
}

/// A JSON response, or that of the error.
fn answer<S: InferenceService, T: Serialize>(shared: &Shared<S>, outcome: Result<T, Error>) -> Response {
    let encoded = outcome.and_then(|value| {
        serde_json::to_vec(&value).map_err(|error| Error::Internal { message: error.to_string() })
    });
    match encoded {
        Ok(body) => json(StatusCode::OK, body.into()),
        Err(error) => problem(shared, &error),
    }
}

fn json(status: StatusCode, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Rejects an unknown path, or a method that a path does not support.
fn not_served<S: InferenceService>(shared: &Shared<S>, method: &Method, path: &str) -> Response {
    let shown = path.chars().take(200).collect::<String>();
    if keys::methods(keys::REST, path).next().is_none() {
        return problem(shared, &shared.rejected(Error::UnknownPath { path: shown }, Transport::Http));
    }
    let error =
        Error::Malformed { message: format!("{shown} does not support {method}: see /v2/openapi.json") };
    let error = shared.rejected(error, Transport::Http);
    json(StatusCode::METHOD_NOT_ALLOWED, codec::encode_error(&error))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scripted::Scripted;

    #[test]
    fn routes_are_those_of_the_table_and_the_description() {
        type Any = fn(
            parm_protocol::InferRequest,
            parm_protocol::Context,
        ) -> std::future::Ready<Result<parm_protocol::InferResponse, Error>>;
        let routes = routes::<Scripted<Any>>();
        let served: BTreeSet<_> =
            routes.served().iter().map(|(method, path)| (method.to_string(), (*path).to_owned())).collect();
        let table: BTreeSet<_> =
            keys::REST.iter().map(|route| (route.method.to_string(), route.path.to_owned())).collect();
        assert_eq!(served, table, "keys::REST has a row for every route and no other rows");
        let document: serde_json::Value = serde_json::from_str(openapi::DOCUMENT).unwrap();
        let described: BTreeSet<_> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().unwrap().keys().filter(|key| *key != "parameters");
                methods.map(|method| (method.to_uppercase(), path.clone()))
            })
            .collect();
        let missing: Vec<_> = described.difference(&served).collect();
        assert!(missing.is_empty(), "openapi.json describes routes that are not served: {missing:?}");
    }
}
