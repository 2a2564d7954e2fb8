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
    code: Option<&'static str>,
}

impl Problem {
    /// A mistake of the client.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::failed(StatusCode::BAD_REQUEST, message)
    }

    /// The model does not exist.
    pub(super) fn unknown_model(name: &str, known: &str) -> Self {
        let shown: String = name.chars().take(100).collect();
        let message = format!("The model `{shown}` does not exist: use `{known}`");
        Self { code: Some("model_not_found"), ..Self::failed(StatusCode::NOT_FOUND, message) }
    }

    /// The prompt and its answer have too many tokens.
    pub(super) fn too_long(prompt: u64, output: u32, context: u64) -> Self {
        let message = format!(
            "The context has {context} tokens at most, and {prompt} of the prompt and {output} of the answer are more: \
             shorten one of them"
        );
        Self { code: Some("context_length_exceeded"), ..Self::invalid(message) }
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
        let code = (status == StatusCode::UNAUTHORIZED).then_some("invalid_api_key");
        Self { headers: Box::new(headers), code, ..Self::failed(status, error.to_string()) }
    }

    pub(super) fn failed(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, headers: Box::default(), message: message.into(), code: None }
    }

    pub(super) fn to_json(&self) -> Value {
        let kind = if self.status.is_server_error() { "server_error" } else { "invalid_request_error" };
        json!({ "error": { "message": self.message, "type": kind, "param": null, "code": self.code } })
    }

    pub(super) fn into_response(self) -> Response<GuestBody> {
        let mut response = answer::json(self.status, &self.to_json());
        response.headers_mut().extend(*self.headers);
        response
    }
}
