//! Who may call the admin API: authenticates callers by key, passes their identity to the handlers, and rejects pages of other sites.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
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
pub(super) async fn check_key(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
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

/// Rejects requests that pages of other sites make through an operator's browser.
///
/// Problem: an operator's browser reaches addresses that outsiders cannot, and runs the scripts of any page. A foreign
/// page may send requests here (CSRF). It may also point its own host name at this address, so that the browser treats
/// the frontend as the page's own site and lets it read the answers (DNS rebinding). A loopback address has no key that
/// would prevent either.
///
/// Choice: a name in `Host` must be `localhost` or configured. IP addresses are accepted, because a rebinding attack
/// sends its own name. If a browser states the origin of a request (`Origin`, `Sec-Fetch-Site`), it must be this site,
/// for every method. Responses have no CORS headers, so other sites cannot read them.
///
/// Rejected: CSRF tokens, because the page has no forms and `parm ctl` would need them too.
pub(super) async fn check_origin(
    State(hosts): State<Arc<[String]>>,
    request: Request,
    next: Next,
) -> Response {
    match problem(request.headers(), request.uri(), &hosts) {
        None => next.run(request).await,
        Some(problem) => Refusal::forbidden(problem).into_response(),
    }
}

/// Returns why the request's origin or host is not acceptable, if so.
fn problem(headers: &HeaderMap, uri: &Uri, hosts: &[String]) -> Option<String> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let authority = text(HOST.as_str()).or_else(|| uri.authority().map(|authority| authority.as_str()));
    // Every browser sends the host name.
    if let Some(authority) = authority.filter(|authority| !is_ours(authority, hosts)) {
        let host = host(authority);
        return Some(format!(
            "unknown host name '{host}': use localhost or an IP address, or add the name to frontend.admin.hosts"
        ));
    }
    if let Some(origin) = text(ORIGIN.as_str()) {
        let from = origin.split_once("://").map(|(_, from)| from);
        if from.is_none() || from != authority {
            return Some(format!(
                "cross-origin request from '{origin}' rejected: open the frontend's own page"
            ));
        }
    }
    match text("sec-fetch-site") {
        None | Some("same-origin" | "none") => None,
        Some(_) => Some("cross-site request rejected: open the frontend's own page".to_owned()),
    }
}

fn is_ours(authority: &str, hosts: &[String]) -> bool {
    let host = host(authority);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    address
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
}

/// Strips the port from an authority.
fn host(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(headers: &[(&'static str, &str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let hosts = ["parm-admin.ml.svc".to_owned()];
        problem(&HeaderMap::from_iter(headers), &Uri::from_static("/admin/v1/settings"), &hosts).is_none()
    }

    #[test]
    fn only_own_names_and_ip_addresses_are_accepted_as_host() {
        let ours = [
            "127.0.0.1:8003",
            "[::1]:8003",
            "localhost",
            "LOCALHOST:80",
            "10.1.2.3",
            "parm-admin.ml.svc:8003",
        ];
        for host in ours {
            assert!(allows(&[("host", host)]), "{host}");
        }
        for host in ["evil.example:8003", "127.0.0.1.evil.example", "localhost.evil.example", "", "ml.svc"] {
            assert!(!allows(&[("host", host)]), "{host}");
        }
        assert!(allows(&[]), "no browser");
    }

    #[test]
    fn cross_site_browser_request_is_rejected() {
        let host = ("host", "127.0.0.1:8003");
        assert!(allows(&[host, ("origin", "http://127.0.0.1:8003"), ("sec-fetch-site", "same-origin")]));
        assert!(allows(&[host, ("sec-fetch-site", "none")]), "typed by hand");
        for origin in ["http://evil.example", "null", "http://127.0.0.1:9000", "http://localhost:8003"] {
            assert!(!allows(&[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site"] {
            assert!(!allows(&[host, ("sec-fetch-site", site)]), "{site}");
        }
    }
}
