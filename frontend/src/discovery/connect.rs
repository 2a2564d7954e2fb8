//! Connections to servers: a trait, which tests implement with scripted servers, and those of the network.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parm_protocol::Error;
use parm_protocol::client::{BoxFuture, Client};
use parm_transport::client::{self, Endpoint, Pipe};
use parm_transport::tls::Outgoing;

use super::dns::Name;
use super::resolver::Resolver;

/// Connects to servers.
pub trait Connect: Send + Sync + 'static {
    /// Checks an address without using the network; the error says what is wrong with it.
    fn check(&self, url: &str) -> Result<(), String>;

    /// Connects to the server at an address.
    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Arc<dyn Client>, Error>>;

    /// Resolves a name to servers as `HOST:PORT`.
    fn resolve<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(async move { Err(format!("cannot resolve {name}: name resolution is not available")) })
    }

    /// Opens a connection to a server other than an instance at `HOST:PORT`: the API server of Kubernetes.
    fn dial<'a>(
        &'a self,
        outgoing: &'a Outgoing,
        authority: &'a str,
        _patience: Duration,
    ) -> BoxFuture<'a, io::Result<Box<dyn Pipe>>> {
        Box::pin(async move { Ok(Box::new(outgoing.dial(authority).await?) as Box<dyn Pipe>) })
    }
}

/// Extracts the host from an address as the default node, because instances on one host fail together. `None` for this
/// host: all local instances would be on one node, which carries no information.
pub(super) fn node(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    if scheme == "unix" {
        return None;
    }
    let authority = rest.split(['/', '?']).next()?;
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next()?,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    let local = host == "localhost" || host == "::1" || host.starts_with("127.");
    (!local && !host.is_empty()).then_some(host)
}

/// Splits an `http://` or `https://` address into host with port, and whether it uses TLS.
pub(super) fn authority(text: &str) -> Option<(String, bool)> {
    let (rest, secured, port) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(rest), _) => (rest, true, 443),
        (None, Some(rest)) => (rest, false, 80),
        (None, None) => return None,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let odd =
        |char: char| char == '/' || char == '?' || char == '@' || char.is_whitespace() || char.is_control();
    if rest.is_empty() || rest.contains(odd) {
        return None;
    }
    let after_host = rest.rsplit_once(']').map_or(rest, |(_, after)| after);
    match after_host.rsplit_once(':') {
        None => Some((format!("{rest}:{port}"), secured)),
        Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => Some((rest.to_owned(), secured)),
        Some(_) => None,
    }
}

/// Connects over HTTP, gRPC or frames, by the scheme of the address.
#[derive(Debug, Default)]
pub struct Wire {
    config: client::Config,
    resolver: Resolver,
}

impl Wire {
    /// Creates clients with these settings.
    pub fn new(config: client::Config) -> Self {
        Self { config, resolver: Resolver::default() }
    }

    /// Sets the name servers; with none the system's are used.
    pub fn with_name_servers(mut self, servers: Vec<SocketAddr>) -> Self {
        self.resolver = Resolver::new(servers);
        self
    }
}

impl Connect for Wire {
    fn check(&self, url: &str) -> Result<(), String> {
        url.parse::<Endpoint>().map(|_| ()).map_err(|error| match error {
            // The caller's message names the address.
            Error::Malformed { message } => {
                message.split_once(": ").map_or(message.clone(), |(_, hint)| hint.to_owned())
            }
            other => other.to_string(),
        })
    }

    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Arc<dyn Client>, Error>> {
        Box::pin(async move { client::connect(&url.parse()?, &self.config) })
    }

    fn resolve<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(self.resolver.resolve(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_address_has_default_port() {
        for (text, expected) in [
            ("https://kubernetes.default.svc", Some(("kubernetes.default.svc:443", true))),
            ("https://10.96.0.1:6443/", Some(("10.96.0.1:6443", true))),
            ("https://[fd00::1]", Some(("[fd00::1]:443", true))),
            ("https://[fd00::1]:6443", Some(("[fd00::1]:6443", true))),
            ("http://127.0.0.1:8001", Some(("127.0.0.1:8001", false))),
            ("127.0.0.1:8001", None),
            ("https://", None),
            ("https://a:b", None),
            ("https://a:0", None),
            ("https://a/apis", None),
            ("https://me@a", None),
        ] {
            let read = authority(text);
            assert_eq!(read.as_ref().map(|(at, secured)| (at.as_str(), *secured)), expected, "{text}");
        }
    }

    #[test]
    fn node_is_the_host_unless_it_is_this_machine() {
        let cases = [
            ("http://10.0.0.5:8000", Some("10.0.0.5")),
            ("grpc://worker-3.pool:8001", Some("worker-3.pool")),
            ("http://[fd00::1]:8000/", Some("fd00::1")),
            ("http://host", Some("host")),
            ("http://127.0.0.1:8000", None),
            ("http://[::1]:8000", None),
            ("unix:/run/parm.sock", None),
        ];
        for (url, expected) in cases {
            assert_eq!(node(url), expected, "{url}");
        }
    }
}
