//! Metadata of the server and its models.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use parm_protocol::{InferenceService, rest as codec};
use serde::Serialize;

use super::{Served, Target, answer, health, json, problem};
use crate::frames;

pub(super) async fn server<S: InferenceService>(State(shared): Served<S>) -> Response {
    let mut metadata = shared.service.server_metadata();
    metadata.extensions.push(frames::EXTENSION.to_owned());
    answer(&shared, Ok(metadata))
}

pub(super) async fn list<S: InferenceService>(State(shared): Served<S>) -> Response {
    #[derive(Serialize)]
    struct Models {
        models: Vec<String>,
    }
    let index = shared.service.repository_index(false);
    let names = index.map(|index| {
        let mut models: Vec<String> = index.into_iter().map(|entry| entry.name).collect();
        models.sort();
        models.dedup();
        Models { models }
    });
    answer(&shared, names)
}

pub(super) async fn metadata<S: InferenceService>(State(shared): Served<S>, target: Target) -> Response {
    answer(&shared, shared.service.model_metadata(&target.into()))
}

pub(super) async fn config<S: InferenceService>(State(shared): Served<S>, target: Target) -> Response {
    answer(&shared, shared.service.model_config(&target.into()))
}

pub(super) async fn ready<S: InferenceService>(State(shared): Served<S>, target: Target) -> Response {
    match shared.service.is_model_ready(&target.into()) {
        Ok(ready) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = health::status(ready);
            response
        }
        Err(error) => problem(&shared, &error),
    }
}

pub(super) async fn statistics<S: InferenceService>(State(shared): Served<S>, target: Target) -> Response {
    match shared.service.statistics(Some(&target.into())) {
        Ok(statistics) => json(StatusCode::OK, codec::encode_statistics(statistics)),
        Err(error) => problem(&shared, &error),
    }
}

pub(super) async fn all_statistics<S: InferenceService>(State(shared): Served<S>) -> Response {
    match shared.service.statistics(None) {
        Ok(statistics) => json(StatusCode::OK, codec::encode_statistics(statistics)),
        Err(error) => problem(&shared, &error),
    }
}
