//! Servers on the network, reached by the protocol's own clients.

use std::sync::Arc;

use parm_protocol::Error;
use parm_protocol::client::{self, BoxFuture, Client, Endpoint};

use super::connect::Connect;

/// Connects over HTTP, gRPC or frames, as the address says.
#[derive(Clone, Debug, Default)]
pub struct Wire {
    config: client::Config,
}

impl Wire {
    /// Clients with these settings.
    pub fn new(config: client::Config) -> Self {
        Self { config }
    }
}

impl Connect for Wire {
    fn check(&self, url: &str) -> Result<(), String> {
        url.parse::<Endpoint>().map(|_| ()).map_err(|error| error.to_string())
    }

    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Arc<dyn Client>, Error>> {
        Box::pin(async move { client::connect(&url.parse()?, &self.config) })
    }
}
