//! Lets callers with the token in.

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parm_protocol::Error;
use parm_wire::client::Token;

use super::refusal::Refusal;

/// Refuses a request without the configured token.
pub(super) async fn check(State(token): State<Option<Token>>, request: Request, next: Next) -> Response {
    let Some(token) = token else { return next.run(request).await };
    let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let sent = sent.and_then(|value| value.strip_prefix("Bearer "));
    match sent {
        Some(sent) if is_same(sent.as_bytes(), token.secret().as_bytes()) => next.run(request).await,
        _ => Refusal::from(Error::Unauthenticated).into_response(),
    }
}

/// In a time that does not tell how much of the token was right.
fn is_same(sent: &[u8], token: &[u8]) -> bool {
    sent.len() == token.len() && sent.iter().zip(token).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
