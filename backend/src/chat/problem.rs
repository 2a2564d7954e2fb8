//! Errors in the shape of OpenAI's API.

use http::header::HeaderMap;
use http::{Response, StatusCode};
use parm_protocol::Error as Refusal;
use parm_transport::server::{self, GuestBody};
use serde_json::{Value, json};

use super::answer;

/// A rejected request.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    headers: Box<HeaderMap>,
    message: String,
}

impl Problem {
    /// A mistake of the client.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::failed(StatusCode::BAD_REQUEST, message)
    }

    /// The replica ended.
    pub(super) fn gone() -> Self {
        Self::failed(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")
    }

    /// An error of the server that the request never reached.
    pub(super) fn of(error: &Refusal) -> Self {
        if let Refusal::Unimplemented { what } = error {
            return Self::failed(StatusCode::METHOD_NOT_ALLOWED, format!("{what} is not supported"));
        }
        let (status, headers) = server::refusal(error);
        Self { headers: Box::new(headers), ..Self::failed(status, error.to_string()) }
    }

    pub(super) fn failed(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, headers: Box::default(), message: message.into() }
    }

    pub(super) fn to_json(&self) -> Value {
        let kind = if self.status.is_server_error() { "server_error" } else { "invalid_request_error" };
        json!({ "error": { "message": self.message, "type": kind, "param": null, "code": null } })
    }

    pub(super) fn into_response(self) -> Response<GuestBody> {
        let mut response = answer::json(self.status, &self.to_json());
        response.headers_mut().extend(*self.headers);
        response
    }
}
