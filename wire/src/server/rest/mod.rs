//! The REST endpoints: one file a group. Handlers parse, call the service, and map the error.

mod body;
mod frames;
mod health;
mod infer;
mod models;
mod openapi;
mod repository;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Method, StatusCode};
use parm_protocol::{Error, InferenceService, ModelRef, Transport, rest as codec};
use serde::{Deserialize, Serialize};

use super::auth::Reach;
use super::config::Scope;
use super::shared::Shared;
use super::status;

pub(super) const CLOSE: HeaderValue = HeaderValue::from_static("close");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What handlers share.
type Served<S> = State<Arc<Shared<S>>>;

/// Every route; `openapi.json` describes the same, and a test holds the two together.
pub(super) fn router<S: InferenceService>(shared: Arc<Shared<S>>) -> Router {
    let mut router = Router::new()
        .route("/v2", get(models::server::<S>))
        .route("/v2/", get(models::server::<S>))
        .route("/v2/openapi.json", get(openapi::document))
        .route("/v2/health/live", get(health::live::<S>))
        .route("/v2/health/ready", get(health::ready::<S>))
        .route("/v2/models", get(models::list::<S>))
        .route("/v2/models/stats", get(models::all_statistics::<S>))
        .route("/v2/repository/index", post(repository::index::<S>))
        .route("/v2/repository/models/{model}/load", post(repository::load::<S>))
        .route("/v2/repository/models/{model}/unload", post(repository::unload::<S>))
        .route("/v2/frames", get(frames::upgrade::<S>));
    for model in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        router = router
            .route(model, get(models::metadata::<S>))
            .route(&format!("{model}/ready"), get(models::ready::<S>))
            .route(&format!("{model}/config"), get(models::config::<S>))
            .route(&format!("{model}/stats"), get(models::statistics::<S>))
            .route(&format!("{model}/infer"), post(infer::infer::<S>));
    }
    router.fallback(unknown_path::<S>).method_not_allowed_fallback(wrong_method::<S>).with_state(shared)
}

/// Whether a request may come in at all. What it needs is said by its path, so that no handler can forget to ask.
pub(super) fn admit<S: InferenceService, B>(
    shared: &Shared<S>,
    request: &http::Request<B>,
    reach: Reach,
) -> Result<(), Error> {
    let path = request.uri().path();
    let scope = if path.starts_with("/v2/health/") {
        return Ok(());
    } else if path.starts_with("/v2/repository/models/") {
        Scope::Admin
    } else {
        Scope::Inference
    };
    let checked = shared.guard.check(request.headers(), scope, reach);
    checked.map_err(|error| shared.rejected(error, Transport::Http))
}

/// The model that a path names.
#[derive(Debug, Deserialize)]
struct Target {
    model: String,
    #[serde(default)]
    version: Option<String>,
}

/// Axum would refuse a path that is no text in words of its own, and uncounted.
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

/// The answer that says `error`.
pub(super) fn problem<S: InferenceService>(shared: &Shared<S>, error: &Error) -> Response {
    let mut response = json(status::of(error.code()).0, codec::encode_error(error));
    if let Some(seconds) = status::retry_after(error, shared.config.retry_after) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A JSON answer, or the error's.
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

async fn unknown_path<S: InferenceService>(State(shared): Served<S>, request: Request) -> Response {
    let path = request.uri().path().chars().take(200).collect();
    problem(&shared, &shared.rejected(Error::UnknownPath { path }, Transport::Http))
}

async fn wrong_method<S: InferenceService>(
    State(shared): Served<S>,
    method: Method,
    request: Request,
) -> Response {
    let path = request.uri().path().chars().take(200).collect::<String>();
    let error = Error::Malformed { message: format!("{path} is not for {method}: see /v2/openapi.json") };
    let error = shared.rejected(error, Transport::Http);
    json(StatusCode::METHOD_NOT_ALLOWED, codec::encode_error(&error))
}
