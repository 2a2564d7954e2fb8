//! Lets callers with the token in.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parm_protocol::Error;
use parm_wire::client::Token;

use super::refusal::Refusal;

/// Refuses a request without the configured token.
pub(super) async fn check(State(token): State<Option<Token>>, request: Request, next: Next) -> Response {
    let Some(token) = token else { return next.run(request).await };
    match Token::given(request.headers()) {
        Some(given) if token.is(given) => next.run(request).await,
        _ => Refusal::from(Error::Unauthenticated).into_response(),
    }
}
