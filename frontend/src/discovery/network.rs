//! Connections to servers on the network, through the protocol's clients.

use std::net::SocketAddr;
use std::sync::Arc;

use parm_protocol::Error;
use parm_protocol::client::{BoxFuture, Client};
use parm_transport::client::{self, Endpoint};

use super::connect::Connect;
use super::name::Name;
use super::resolver::Resolver;

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
