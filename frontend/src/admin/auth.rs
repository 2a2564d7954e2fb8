//! Who calls: callers with the token are let in, and whoever answers them knows who they are.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parm_protocol::Error;
use parm_wire::client::Token;
use serde::Serialize;

use super::refusal::Refusal;

/// Whoever calls.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The name of its key, where keys are asked for.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) role: Role,
}

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Change everything.
    Admin,
}

/// Refuses a request without the configured token.
pub(super) async fn check(State(token): State<Option<Token>>, mut request: Request, next: Next) -> Response {
    let name = match &token {
        None => None,
        Some(token) => match Token::given(request.headers()) {
            Some(given) if token.is(given) => Some("admin".into()),
            _ => return Refusal::from(Error::Unauthenticated).into_response(),
        },
    };
    request.extensions_mut().insert(Caller { name, role: Role::Admin });
    next.run(request).await
}
