//! Rejects requests that pages of other sites make through an operator's browser.
//!
//! Problem: an operator's browser reaches addresses that outsiders cannot, and runs the scripts of any page. A foreign
//! page may send requests here (CSRF). It may also point its own host name at this address, so that the browser treats
//! the frontend as the page's own site and lets it read the answers (DNS rebinding). A loopback address has no key that
//! would prevent either.
//!
//! Choice: a name in `Host` must be `localhost` or configured. IP addresses are accepted, because a rebinding attack
//! sends its own name. If a browser states the origin of a request (`Origin`, `Sec-Fetch-Site`), it must be this site,
//! for every method. Responses have no CORS headers, so other sites cannot read them.
//!
//! Rejected: CSRF tokens, because the page has no forms and `parm ctl` would need them too.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::refusal::Refusal;

/// Admits requests from the own page, or from clients other than browsers.
pub(super) async fn check(State(hosts): State<Arc<[String]>>, request: Request, next: Next) -> Response {
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
