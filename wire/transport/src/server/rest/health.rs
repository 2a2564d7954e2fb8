//! `/v2/health`: empty bodies, the result is the status.

use axum::extract::State;
use http::StatusCode;
use parm_protocol::InferenceService;

use super::Served;

pub(super) async fn live<S: InferenceService>(State(shared): Served<S>) -> StatusCode {
    status(shared.service.is_live())
}

pub(super) async fn ready<S: InferenceService>(State(shared): Served<S>) -> StatusCode {
    status(shared.service.is_ready())
}

pub(super) fn status(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}
