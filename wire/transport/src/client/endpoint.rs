//! A server's address and transport in text form.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use parm_protocol::Error;

/// A server's address: `http://host:port` or `unix:/path` (frames if offered, otherwise HTTP), `frames://host:port`,
/// `frames+unix:/path`, `grpc://host:port`, `grpc+unix:/path`; with TLS `https://`, `frames+tls://` and `grpcs://`. An address
/// of HTTP or gRPC after `upstream+` gets requests that are not of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(super) scheme: Scheme,
    /// Whether TLS is required.
    pub(super) secured: bool,
    pub(super) address: DialAddress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// HTTP, or frames if the server offers them.
    Http,
    Frames,
    Grpc,
    /// HTTP requests of any kind, passed on as clients send them.
    Upstream,
    /// HTTP requests and gRPC calls of any kind, passed on over HTTP/2.
    UpstreamHttp2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DialAddress {
    /// `host:port`; IPv6 addresses in brackets.
    Tcp(String),
    Unix(PathBuf),
}

/// The beginnings of addresses with host and port.
const TCP: [(&str, Scheme, bool); 10] = [
    ("http://", Scheme::Http, false),
    ("https://", Scheme::Http, true),
    ("frames://", Scheme::Frames, false),
    ("frames+tls://", Scheme::Frames, true),
    ("grpc://", Scheme::Grpc, false),
    ("grpcs://", Scheme::Grpc, true),
    ("upstream+http://", Scheme::Upstream, false),
    ("upstream+https://", Scheme::Upstream, true),
    ("upstream+grpc://", Scheme::UpstreamHttp2, false),
    ("upstream+grpcs://", Scheme::UpstreamHttp2, true),
];

/// The beginnings of addresses with the path of a Unix socket.
const UNIX: [(&str, Scheme); 5] = [
    ("unix:", Scheme::Http),
    ("frames+unix:", Scheme::Frames),
    ("grpc+unix:", Scheme::Grpc),
    ("upstream+unix:", Scheme::Upstream),
    ("upstream+grpc+unix:", Scheme::UpstreamHttp2),
];

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        for (prefix, scheme, secured) in TCP {
            if let Some(rest) = text.strip_prefix(prefix) {
                return Ok(Self { scheme, secured, address: DialAddress::Tcp(authority(text, rest)?) });
            }
        }
        for (prefix, scheme) in UNIX {
            if let Some(path) = text.strip_prefix(prefix).filter(|path| path.starts_with('/')) {
                return Ok(Self { scheme, secured: false, address: DialAddress::Unix(path.into()) });
            }
        }
        if text.starts_with(UPSTREAM) {
            return Err(invalid(
                text,
                "use http://host:port or grpc://host:port (with TLS https://, grpcs://), unix:/path or grpc+unix:/path",
            ));
        }
        Err(invalid(
            text,
            "use http://host:port, grpc://host:port, frames://host:port (with TLS https://, grpcs://, frames+tls://) or \
             unix:/path",
        ))
    }
}

fn authority(text: &str, rest: &str) -> Result<String, Error> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let port =
        rest.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(1..)) if !rest.contains('/') => Ok(rest.into()),
        _ => Err(invalid(
            text,
            "a host, a colon and a port from 1 to 65535 must follow the scheme, without a path",
        )),
    }
}

/// The beginning of an address whose server gets requests of any kind. Operators do not write it.
const UPSTREAM: &str = "upstream+";

fn invalid(text: &str, hint: &str) -> Error {
    let text = text.strip_prefix(UPSTREAM).unwrap_or(text);
    Error::Malformed { message: format!("'{text}' is not a server address: {hint}") }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = (self.scheme, self.secured);
        let begins = match self.address {
            DialAddress::Tcp(_) => {
                TCP.iter().find(|(_, scheme, secured)| (*scheme, *secured) == own).map(|row| row.0)
            }
            DialAddress::Unix(_) => UNIX.iter().find(|(_, scheme)| *scheme == self.scheme).map(|row| row.0),
        };
        write!(f, "{}{}", begins.unwrap_or_default(), self.address)
    }
}

impl fmt::Display for DialAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialAddress::Tcp(authority) => f.write_str(authority),
            DialAddress::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read_and_shown_again() {
        for text in [
            "http://127.0.0.1:8000",
            "http://[::1]:8000",
            "grpc://worker.default.svc:8001",
            "frames://w:1",
            "https://w:443",
            "grpcs://[::1]:8001",
            "frames+tls://w:1",
            "unix:/run/parm/w0.sock",
            "frames+unix:/w",
            "grpc+unix:/w",
            "upstream+http://w:1",
            "upstream+https://w:1",
            "upstream+unix:/w",
            "upstream+grpc://w:1",
            "upstream+grpcs://w:1",
            "upstream+grpc+unix:/w",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("http://w:80/".parse::<Endpoint>().unwrap().to_string(), "http://w:80");
    }

    #[test]
    fn invalid_address_error_shows_the_format() {
        for text in [
            "",
            "w:8000",
            "http://w",
            "http://:8000",
            "http://w:0",
            "http://w:99999",
            "http://w:1/v2",
            "https://w",
            "grpcs+unix:/w",
            "unix:w",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.to_string().contains("host"), "{text}: {error}");
        }
        let error = "upstream+ftp://w:1".parse::<Endpoint>().unwrap_err().to_string();
        assert!(error.contains("'ftp://w:1'") && error.contains("grpc+unix:/path"), "{error}");
        assert!(!error.contains("frames"), "{error}");
    }
}
