//! Keeps the pages of other sites out.
//!
//! Problem: an operator's browser reaches addresses that nobody else does, and runs whatever page it was led to. Such a page
//! may send requests here (CSRF), or give its own host's name our address, so that the browser takes us for its own site and
//! lets it read the answers too (DNS rebinding). On a loopback address there is no key that would stop either.
//!
//! Choice: a name in `Host` must be one of ours: `localhost`, or one that is configured. Addresses are all let in: whoever
//! rebinds a name sends that name. And where a browser says which site a request comes from (`Origin`, `Sec-Fetch-Site`),
//! it must be this one, whatever the method. Nothing says CORS, so that answers are not for others anyway.
//!
//! Rejected: tokens in forms (the page has no forms, and `parm ctl` would need them).

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::refusal::Refusal;

/// Lets requests through that come from here, or from no browser.
pub(super) async fn check(State(hosts): State<Arc<[String]>>, request: Request, next: Next) -> Response {
    match problem(request.headers(), request.uri(), &hosts) {
        None => next.run(request).await,
        Some(problem) => Refusal::forbidden(problem).into_response(),
    }
}

/// What is wrong with where a request comes from or goes to.
fn problem(headers: &HeaderMap, uri: &Uri, hosts: &[String]) -> Option<String> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let authority = text(HOST.as_str()).or_else(|| uri.authority().map(|authority| authority.as_str()));
    // Every browser says whom it means.
    if let Some(authority) = authority.filter(|authority| !is_ours(authority, hosts)) {
        let host = host(authority);
        return Some(format!(
            "'{host}' is no name of this frontend: use its address or localhost, or add the name to frontend.admin.hosts"
        ));
    }
    if let Some(origin) = text(ORIGIN.as_str()) {
        let from = origin.split_once("://").map(|(_, from)| from);
        if from.is_none() || from != authority {
            return Some(format!("a page of '{origin}' may not call this: open the frontend's own page"));
        }
    }
    match text("sec-fetch-site") {
        None | Some("same-origin" | "none") => None,
        Some(_) => Some("a page of another site may not call this: open the frontend's own page".to_owned()),
    }
}

fn is_ours(authority: &str, hosts: &[String]) -> bool {
    let host = host(authority);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    address
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
}

/// The host in a host and perhaps a port.
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
    fn only_our_own_names_and_addresses_are_hosts() {
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
    fn what_a_browser_sends_for_another_site_is_refused() {
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
