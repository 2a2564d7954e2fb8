//! Authenticates callers of the admin API by key, and passes their identity to the handlers.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parm_protocol::Error;
use parm_transport::client::Token;
use parm_transport::keys::{self, Access, Entry, Keys, Role, Visit};

use super::ROUTES;
use super::refusal::{Refusal, unknown_path, wrong_method};

/// Name of the key from the configuration.
const CONFIGURED: &str = "admin";

/// Keys of the admin API: those of the key file and the one from the configuration.
#[derive(Clone)]
pub(super) struct Gate {
    keys: Keys,
    configured: Keys,
}

impl Gate {
    pub(super) fn new(keys: Keys, token: Option<&Token>) -> Self {
        let entry = |token: &Token| Keys::of(&[Entry::new(CONFIGURED, Role::Control, token.digest())]);
        Self { keys, configured: token.map_or_else(Keys::none, entry) }
    }

    /// Whether the API may listen on an address: without a key only on loopback.
    pub(super) fn allows(&self, address: SocketAddr) -> bool {
        let asks = self.keys.are_asked_for() || self.configured.are_asked_for();
        asks || address.ip().to_canonical().is_loopback()
    }

    fn admit(&self, headers: &HeaderMap, access: Access) -> Result<Visit, Error> {
        if !self.configured.are_asked_for() {
            return self.keys.admit(headers, access);
        }
        let admitted = self.configured.admit(headers, access);
        // If both are configured, either may accept the key.
        if admitted.is_err() && self.keys.are_asked_for() {
            self.keys.admit(headers, access)
        } else {
            admitted
        }
    }
}

/// Admits a request if its route exists and the caller's role allows it, per the table of routes.
pub(super) async fn check(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let access = keys::find(&ROUTES, method, path).map(|route| route.access);
    let visit = match gate.admit(request.headers(), access.unwrap_or(Access::AnyKey)) {
        Ok(visit) => visit,
        Err(error) => return Refusal::from(error).into_response(),
    };
    if access.is_none() {
        return match keys::methods(&ROUTES, path).next() {
            None => unknown_path(request.uri()).into_response(),
            Some(_) => wrong_method(method, request.uri()).into_response(),
        };
    }
    request.extensions_mut().insert(visit.caller().clone());
    let answer = next.run(request).await;
    drop(visit);
    answer
}
