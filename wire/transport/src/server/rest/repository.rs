//! The repository extension: lists, loads and unloads models.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::response::Response;
use parm_protocol::{Error, InferenceService, Transport};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::{Served, Target, answer, body, problem};
use crate::server::replacements;
use crate::server::shared::Shared;

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

/// Success without content: `{}`.
#[derive(Serialize)]
struct Nothing {}

pub(super) async fn index<S: InferenceService>(State(shared): Served<S>, request: Request) -> Response {
    match read::<Question, S>(request, &shared).await {
        Ok(Question { ready }) => answer(&shared, shared.service.repository_index(ready)),
        Err(error) => problem(&shared, &shared.rejected(error, Transport::Http)),
    }
}

pub(super) async fn load<S: InferenceService>(
    State(shared): Served<S>,
    target: Target,
    request: Request,
) -> Response {
    let asked = read::<LoadBody, S>(request, &shared).await;
    let allowed = asked.and_then(|asked| replacements::reject(asked.parameters.keys().map(String::as_str)));
    if let Err(error) = allowed {
        return problem(&shared, &shared.rejected(error, Transport::Http));
    }
    let outcome = shared.service.load_model(&target.model).await;
    answer(&shared, outcome.map(|()| Nothing {}))
}

pub(super) async fn unload<S: InferenceService>(State(shared): Served<S>, target: Target) -> Response {
    let outcome = shared.service.unload_model(&target.model).await;
    answer(&shared, outcome.map(|()| Nothing {}))
}

/// Reads a body that may be empty.
async fn read<T: Default + DeserializeOwned, S: InferenceService>(
    request: Request,
    shared: &Shared<S>,
) -> Result<T, Error> {
    let body = body::read(request, shared).await?.bytes;
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&body).map_err(|error| Error::Malformed { message: error.to_string() })
}
