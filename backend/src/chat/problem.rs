//! Errors in the shape of OpenAI's API.

use http::header::{HeaderMap, HeaderValue, RETRY_AFTER};
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
    kind: &'static str,
    message: String,
    param: Option<&'static str>,
    code: Option<&'static str>,
}

impl Problem {
    /// A mistake of the client.
    pub(super) fn invalid(message: impl Into<String>, param: Option<&'static str>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            headers: Box::default(),
            kind: "invalid_request_error",
            message: message.into(),
            param,
            code: None,
        }
    }

    /// The model does not exist.
    pub(super) fn unknown_model(name: &str, known: &str) -> Self {
        let shown: String = name.chars().take(100).collect();
        let message = format!("The model `{shown}` does not exist: use `{known}`");
        let code = Some("model_not_found");
        Self { status: StatusCode::NOT_FOUND, code, ..Self::invalid(message, Some("model")) }
    }

    /// The prompt and its answer have too many tokens.
    pub(super) fn too_long(prompt: u64, output: u64, context: usize, param: &'static str) -> Self {
        let message = format!(
            "The context has {context} tokens at most, and {prompt} of the prompt and {output} of the answer are more: \
             shorten one of them"
        );
        Self { code: Some("context_length_exceeded"), ..Self::invalid(message, Some(param)) }
    }

    /// Too many requests wait.
    pub(super) fn full(queue: usize) -> Self {
        let mut headers = Box::<HeaderMap>::default();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        let message = format!("{queue} requests are waiting: try again later");
        Self { headers, code: Some("overloaded"), ..Self::failed(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// A fault plan made the request fail.
    pub(super) fn injected() -> Self {
        Self::failed(StatusCode::INTERNAL_SERVER_ERROR, "an injected fault".into())
    }

    /// The replica ended.
    pub(super) fn gone() -> Self {
        Self::failed(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down".into())
    }

    /// An error of the server that the request never reached.
    pub(super) fn of(error: &Refusal) -> Self {
        if let Refusal::Unimplemented { what } = error {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            return Self { status, ..Self::invalid(format!("{what} is not supported"), None) };
        }
        let (status, headers) = server::refusal(error);
        let headers = Box::new(headers);
        let code = (status == StatusCode::UNAUTHORIZED).then_some("invalid_api_key");
        let problem = Self::invalid(error.to_string(), None);
        let kind = if status.is_server_error() { "server_error" } else { problem.kind };
        Self { status, headers, kind, code, ..problem }
    }

    fn failed(status: StatusCode, message: String) -> Self {
        Self { status, kind: "server_error", ..Self::invalid(message, None) }
    }

    pub(super) fn to_json(&self) -> Value {
        let Self { kind, message, param, code, .. } = self;
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }

    pub(super) fn into_response(self) -> Response<GuestBody> {
        let mut response = answer::json(self.status, &self.to_json());
        response.headers_mut().extend(*self.headers);
        response
    }
}
