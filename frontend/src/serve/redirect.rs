//! Redirects to an upstream server's own address, which the client gets as parm's.
//!
//! Problem: a server makes absolute redirects for the host that it was asked as, its own. A client that follows one leaves parm,
//! or cannot reach the server at all.
//!
//! Choice: as nginx does by default. If the address is that of any upstream server, host and scheme become those that the
//! client used; path and query stay byte by byte. Other addresses, such as those of storage, stay.
//!
//! Rejected: the client's host as the server's `Host`. Servers that choose by it, or check it, would refuse requests that they
//! answer without parm.

use http::header::{CONTENT_LOCATION, HeaderMap, HeaderValue, LOCATION};
use parm_protocol::forwarded;

/// The address that a client used.
pub(super) struct Addressed {
    scheme: Option<HeaderValue>,
    host: Option<HeaderValue>,
}

impl Addressed {
    /// Reads the address from a request's headers. Does not allocate.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let own = |name| headers.get(name).cloned();
        Self { scheme: own(forwarded::SCHEME), host: own(forwarded::HOST) }
    }

    /// Corrects the addresses in an answer. `servers` lists the addresses of the upstream servers, and is called only if the
    /// answer has an absolute one.
    pub(super) fn correct(&self, headers: &mut HeaderMap, servers: impl Fn() -> Vec<String>) {
        for name in [LOCATION, CONTENT_LOCATION] {
            let corrected =
                headers.get(&name).and_then(|value| self.corrected(value.to_str().ok()?, &servers));
            if let Some(corrected) = corrected {
                headers.insert(name, corrected);
            }
        }
    }

    /// The address for the client; `None` if it stays.
    fn corrected(&self, address: &str, servers: impl Fn() -> Vec<String>) -> Option<HeaderValue> {
        let (scheme, authority, rest) = parts(address)?;
        let is_own = servers().iter().any(|server| is_of(server, scheme, authority));
        if !is_own {
            return None;
        }
        let text = |value: &Option<HeaderValue>| value.as_ref()?.to_str().ok().map(str::to_owned);
        let corrected = match (text(&self.scheme), text(&self.host)) {
            (Some(scheme), Some(host)) => format!("{scheme}://{host}{rest}"),
            // A client of HTTP/1.0 may state no host. A path alone leads back to where it asked.
            _ if rest.starts_with('/') => rest.to_owned(),
            _ => format!("/{rest}"),
        };
        HeaderValue::try_from(corrected).ok()
    }
}

/// Scheme, authority and rest of an absolute address of HTTP. The scheme is empty if it is that of the request.
fn parts(address: &str) -> Option<(&str, &str, &str)> {
    let (scheme, after) = address.split_once("//")?;
    let scheme = match scheme.strip_suffix(':') {
        Some(scheme) if ["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme)) => scheme,
        None if scheme.is_empty() => scheme,
        _ => return None,
    };
    let end = after.find(['/', '?', '#', '\\']).unwrap_or(after.len());
    let (authority, rest) = after.split_at(end);
    Some((scheme, authority, rest))
}

/// Whether an authority is that of a server, such as `upstream+http://10.0.0.5:8000`.
fn is_of(server: &str, scheme: &str, authority: &str) -> bool {
    let server = server.strip_prefix("upstream+").unwrap_or(server);
    // A server at a Unix socket is asked as `localhost`.
    let (own_scheme, own) = server.split_once("://").unwrap_or(("http", "localhost:80"));
    let own_scheme = if own_scheme.ends_with('s') { "https" } else { "http" };
    let (scheme, own) = (if scheme.is_empty() { own_scheme } else { scheme }, own.trim_end_matches('/'));
    let (host, port) = with_port(authority, scheme);
    let (own_host, own_port) = with_port(own, own_scheme);
    host.eq_ignore_ascii_case(own_host) && port == own_port
}

/// Host and port of an authority.
fn with_port<'a>(authority: &'a str, scheme: &str) -> (&'a str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') && !port.is_empty() => (host, port.parse().ok()),
        Some((host, "")) => (host, Some(usual_port(scheme))),
        _ => (authority, Some(usual_port(scheme))),
    }
}

fn usual_port(scheme: &str) -> u16 {
    if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [&str; 4] = [
        "upstream+http://10.0.0.5:8000",
        "upstream+https://secure.local:443",
        "upstream+http://[2001:db8::1]:80",
        "upstream+unix:/run/model.sock",
    ];

    fn corrected(address: &str) -> Option<String> {
        let asked = Addressed {
            scheme: Some(HeaderValue::from_static("https")),
            host: Some(HeaderValue::from_static("api.example.com:8443")),
        };
        let servers = || SERVERS.map(str::to_owned).to_vec();
        let mut headers = HeaderMap::from_iter([(LOCATION, address.parse().unwrap())]);
        headers.insert(CONTENT_LOCATION, address.parse().unwrap());
        asked.correct(&mut headers, servers);
        assert_eq!(headers[LOCATION], headers[CONTENT_LOCATION]);
        (headers[LOCATION] != address).then(|| headers[LOCATION].to_str().unwrap().to_owned())
    }

    #[test]
    fn redirect_to_a_server_leads_to_the_address_asked() {
        for (address, rest) in [
            ("http://10.0.0.5:8000/who?a=%20b#c", "/who?a=%20b#c"),
            ("HTTP://10.0.0.5:8000", ""),
            ("http://10.0.0.5:8000?a", "?a"),
            ("//10.0.0.5:8000/who", "/who"),
            ("https://Secure.Local/a//b", "/a//b"),
            ("https://secure.local:443/", "/"),
            ("http://[2001:DB8::1]/v6", "/v6"),
            ("http://localhost/socket", "/socket"),
        ] {
            let expected = format!("https://api.example.com:8443{rest}");
            assert_eq!(corrected(address).as_deref(), Some(&*expected), "{address}");
        }
    }

    #[test]
    fn redirect_elsewhere_stays() {
        for address in [
            "/who",
            "who//there",
            "?a=http://10.0.0.5:8000/",
            "http://10.0.0.5:8001/who",
            "http://10.0.0.5/who",
            "https://10.0.0.5:8000.example.com/",
            "http://user@10.0.0.5:8000/",
            "http://secure.local/plain",
            "ftp://10.0.0.5:8000/",
            "https://storage.example.com/a",
        ] {
            assert_eq!(corrected(address), None, "{address}");
        }
    }

    #[test]
    fn client_without_a_host_gets_a_path() {
        let asked = Addressed { scheme: Some(HeaderValue::from_static("http")), host: None };
        let servers = || SERVERS.map(str::to_owned).to_vec();
        for (address, expected) in [("http://10.0.0.5:8000/a?b", "/a?b"), ("http://10.0.0.5:8000?b", "/?b")] {
            assert_eq!(asked.corrected(address, servers).unwrap(), expected);
        }
    }
}
