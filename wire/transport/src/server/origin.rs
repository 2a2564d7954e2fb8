//! The client's side of a forwarded request, in the headers `X-Forwarded-For`, `-Host` and `-Proto`.
//!
//! Problem: a server behind parm logs its clients, and makes absolute links and redirects for them.
//!
//! Choice: as usual for nginx. The client's address follows those that the client states itself, so the server decides how many
//! of the last ones to trust. Host and scheme are one value each, of which parm knows the true one: a client's own are replaced.
//!
//! Rejected: `Forwarded` (RFC 7239), which few model servers read; a client's own passes unchanged.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use parm_protocol::forwarded::{HOST, SCHEME};

use crate::listening::ClientEnd;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's side of a connection, as header values. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    address: Option<HeaderValue>,
    scheme: HeaderValue,
}

impl Origin {
    pub(super) fn of(client: ClientEnd) -> Self {
        let scheme = HeaderValue::from_static(if client.secured { "https" } else { "http" });
        let address = client.address.and_then(|address| HeaderValue::try_from(address.to_string()).ok());
        Self { address, scheme }
    }

    /// Writes the headers of a request. `host` is the one that the client addressed.
    pub(super) fn state(&self, host: Option<HeaderValue>, headers: &mut HeaderMap) {
        if let Some(address) = &self.address {
            let all = match headers.contains_key(FOR) {
                true => followed_by(headers.get_all(FOR).iter(), address),
                false => address.clone(),
            };
            headers.insert(FOR, all);
        }
        headers.insert(SCHEME, self.scheme.clone());
        match host {
            Some(host) => headers.insert(HOST, host),
            None => headers.remove(HOST),
        };
    }
}

/// The list of the client's headers and the last address. Many servers read one header only.
fn followed_by<'a>(stated: impl Iterator<Item = &'a HeaderValue>, address: &'a HeaderValue) -> HeaderValue {
    let all: Vec<&[u8]> = stated.chain([address]).map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&all.join(&b", "[..])).unwrap_or_else(|_| address.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(client: ClientEnd, host: Option<&'static str>, own: &[(&'static str, &str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in own {
            headers.append(*name, value.parse().unwrap());
        }
        Origin::of(client).state(host.map(HeaderValue::from_static), &mut headers);
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn client_is_stated_and_its_own_claims_are_not_trusted() {
        let client = ClientEnd { address: Some([192, 0, 2, 7].into()), secured: true };
        let [host, scheme] = ["x-forwarded-host: api.example.com", "x-forwarded-proto: https"];
        let alone = stated(client, Some("api.example.com"), &[]);
        assert_eq!(alone, ["x-forwarded-for: 192.0.2.7", host, scheme]);
        let claims = [
            ("x-forwarded-for", "203.0.113.9, 10.0.0.1"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x-forwarded-host", "evil.example"),
            ("x-forwarded-proto", "gopher"),
        ];
        let claimed = stated(client, Some("api.example.com"), &claims);
        assert_eq!(claimed, ["x-forwarded-for: 203.0.113.9, 10.0.0.1, 10.0.0.2, 192.0.2.7", host, scheme]);
        assert_eq!(stated(ClientEnd::default(), None, &claims[2..]), ["x-forwarded-proto: http"]);
    }
}
