//! How a server is reached. A trait, so that tests script the servers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parm_protocol::Error;
use parm_protocol::client::{BoxFuture, Client};
use parm_wire::client::Pipe;
use parm_wire::tls::Outgoing;

use super::name::Name;

/// Connects to servers.
pub trait Connect: Send + Sync + 'static {
    /// Whether an address can be one, without asking the network; else what is wrong with it.
    fn check(&self, url: &str) -> Result<(), String>;

    /// Connects to the server at an address.
    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Arc<dyn Client>, Error>>;

    /// The servers that a name stands for now, as `HOST:PORT`; else what went wrong.
    fn resolve<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(async move { Err(format!("{name} cannot be looked up here")) })
    }

    /// Opens a connection to the API server of Kubernetes at `HOST:PORT`.
    fn dial<'a>(
        &'a self,
        outgoing: &'a Outgoing,
        authority: &'a str,
        patience: Duration,
    ) -> BoxFuture<'a, io::Result<Box<dyn Pipe>>> {
        Box::pin(async move { Ok(Box::new(outgoing.dial(authority, patience).await?) as Box<dyn Pipe>) })
    }
}

/// The machine in an address, where it tells one from another: what stands on one machine fails together. On this
/// machine everything is one node, which says nothing, so there it is none.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_the_host_unless_it_is_this_machine() {
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
