//! Errors as the admin API sends them: `{"error": "..."}`, as on the data path.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::error::Error;

/// A refused call.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    message: String,
}

impl Refusal {
    /// Whoever asks may not have this.
    pub(super) fn forbidden(message: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, message }
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
            Error::BadUrl { .. } | Error::BadSettings { .. } | Error::RecordingLength { .. } => {
                StatusCode::BAD_REQUEST
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, message: error.to_string() }
    }
}

impl From<parm_protocol::Error> for Refusal {
    fn from(error: parm_protocol::Error) -> Self {
        let status = match error.code() {
            parm_protocol::Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            parm_protocol::Code::NotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Self { status, message: error.to_string() }
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        Self { status: rejection.status(), message: rejection.body_text() }
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        Self { status: rejection.status(), message: rejection.body_text() }
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        Self { status: rejection.status(), message: rejection.body_text() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "error": self.message }))).into_response()
    }
}

/// A path that the API does not have.
pub(super) async fn unknown_path(uri: Uri) -> Refusal {
    let message = format!(
        "unknown path '{}': the admin API has /admin/v1/instances, /admin/v1/settings, /admin/v1/stream, \
         /admin/v1/queries and /admin/v1/recording",
        uri.path()
    );
    Refusal { status: StatusCode::NOT_FOUND, message }
}

/// A method that a path does not take.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    let message = format!("'{}' does not take {method}", uri.path());
    Refusal { status: StatusCode::METHOD_NOT_ALLOWED, message }
}
