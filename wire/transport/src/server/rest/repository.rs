//! The repository extension: lists, loads and unloads models.

use axum::extract::{Request, State};
use axum::response::Response;
use parm_protocol::{Error, InferenceService, Transport};
use serde::{Deserialize, Serialize};

use super::{Served, Target, answer, body, problem};

/// The body of `POST /v2/repository/index`; may be empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Question {
    ready: bool,
}

/// Success without content: `{}`.
#[derive(Serialize)]
struct Nothing {}

pub(super) async fn index<S: InferenceService>(State(shared): Served<S>, request: Request) -> Response {
    let question = match body::read(request, &shared).await.map(|held| held.bytes) {
        Ok(body) if body.is_empty() => Ok(Question::default()),
        Ok(body) => {
            serde_json::from_slice(&body).map_err(|error| Error::Malformed { message: error.to_string() })
        }
        Err(error) => Err(error),
    };
    match question {
        Ok(Question { ready }) => answer(&shared, shared.service.repository_index(ready)),
        Err(error) => problem(&shared, &shared.rejected(error, Transport::Http)),
    }
}

pub(super) async fn load<S: InferenceService>(State(shared): Served<S>, target: Target) -> Response {
    let outcome = shared.service.load_model(&target.model).await;
    answer(&shared, outcome.map(|()| Nothing {}))
}

pub(super) async fn unload<S: InferenceService>(State(shared): Served<S>, target: Target) -> Response {
    let outcome = shared.service.unload_model(&target.model).await;
    answer(&shared, outcome.map(|()| Nothing {}))
}
