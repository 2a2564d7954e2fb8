//! Errors of the admin API: `{"error": "..."}`, as on the data path.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parm_protocol::rest;
use serde_json::json;

use super::access::ROUTES;
use crate::error::Error;

/// A rejected call.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    message: String,
    /// `Retry-After` and `WWW-Authenticate`.
    headers: HeaderMap,
}

impl Refusal {
    fn new(status: StatusCode, message: String) -> Self {
        Self { status, message, headers: HeaderMap::new() }
    }

    /// Rejects a caller without permission.
    pub(super) fn forbidden(message: String) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::UnknownInstance { .. } | Error::UnknownModel { .. } | Error::UnknownQuery { .. } => {
                StatusCode::NOT_FOUND
            }
            Error::DuplicateInstance { .. } | Error::Embedded { .. } => StatusCode::CONFLICT,
            Error::TooManyInstances { .. }
            | Error::TooManyRecordings { .. }
            | Error::TooManyWatchers { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Error::BadUrl { .. }
            | Error::BadSettings { .. }
            | Error::UnknownOutcome { .. }
            | Error::RecordingLength { .. } => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl From<parm_protocol::Error> for Refusal {
    fn from(error: parm_protocol::Error) -> Self {
        let (status, headers) = parm_transport::server::refusal(&error);
        Self { status, message: error.to_string(), headers }
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut message = self.message;
        rest::shorten(&mut message);
        (self.status, self.headers, Json(json!({ "error": message }))).into_response()
    }
}

/// Rejects an unknown path.
pub(super) fn unknown_path(uri: &Uri) -> Refusal {
    let mut known: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
    known.retain(|path| path.starts_with("/admin/") && !path.contains('{'));
    known.dedup();
    let message = format!("unknown path '{}': the admin API has {}", uri.path(), known.join(", "));
    Refusal::new(StatusCode::NOT_FOUND, message)
}

/// Rejects a method that a path does not support.
pub(super) fn wrong_method(method: &Method, uri: &Uri) -> Refusal {
    let message = format!("'{}' does not support {method}", uri.path());
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message)
}
