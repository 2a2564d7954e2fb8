//! ONE server of the protocol, generic over [`InferenceService`]: the frontend and the worker are both served by it.
//!
//! Reading order: `listener` accepts, `connection` serves HTTP on what was accepted and watches it by its `activity`,
//! `auth` lets requests in, `rest` and `grpc` answer them, `upgrade` takes a connection over to frames, `status` maps errors, `page` serves metrics.

mod activity;
mod address;
mod age;
mod auth;
mod config;
mod connection;
mod grpc;
mod listener;
mod page;
mod rest;
mod routes;
mod shared;
mod status;
mod upgrade;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use address::Address;
pub use config::{Config, ModelControl};
pub use page::Page;
pub use routes::Routes;
pub use status::refusal;
#[cfg(test)]
pub(crate) use upgrade::Offer;

use listener::Listener;
use parm_protocol::{Error, InferenceService};
use shared::Shared;

use crate::keys::Keys;
use crate::tls::{Spoken, Tls};

/// Connections that the metrics listener serves at a time: scrapers, not clients.
const METRICS_CONNECTIONS: usize = 64;

/// A server whose addresses are bound but that answers nobody yet.
pub struct Server<S> {
    shared: Arc<Shared<S>>,
    http: Vec<Listener>,
    metrics: Listener,
    pages: Vec<Page>,
    tls: Tls,
    addresses: Addresses,
}

/// Where a server can be reached; port 0 is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// HTTP.
    pub http: SocketAddr,
    /// gRPC.
    pub grpc: SocketAddr,
    /// Metrics.
    pub metrics: SocketAddr,
}

impl<S: InferenceService> Server<S> {
    /// Reads the keys and binds every address of the configuration.
    pub async fn bind(config: Config, service: Arc<S>) -> Result<Self, Error> {
        let keys = Keys::open(config.keys_file.as_deref())?;
        Self::bind_for(keys, config, service).await
    }

    /// Binds every address of the configuration, for callers with these keys.
    pub async fn bind_for(keys: Keys, config: Config, service: Arc<S>) -> Result<Self, Error> {
        let http = Listener::tcp(config.http).await?;
        let grpc = Listener::tcp(config.grpc).await?;
        let metrics = Listener::tcp(config.metrics).await?;
        let addresses =
            Addresses { http: http.address()?, grpc: grpc.address()?, metrics: metrics.address()? };
        // gRPC is HTTP/2 with paths of its own, so every listener may speak all; two ports are kept for clients' sake.
        let mut listeners = vec![http, grpc];
        if let Some(path) = &config.unix {
            listeners.push(Listener::unix(path)?);
        }
        let shared = Shared::new(config, service, keys);
        for listener in &listeners {
            if let Some(warning) = shared.guard.warning(listener.reach()) {
                tracing::warn!(address = %listener, "{warning}");
            }
        }
        Ok(Self { shared, http: listeners, metrics, pages: Vec::new(), tls: Tls::default(), addresses })
    }

    /// Speaks TLS on every address, as it says. The Unix socket stays plain.
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Serves a page beside the protocol, on the metrics address.
    pub fn with_page(mut self, page: Page) -> Self {
        self.pages.push(page);
        self
    }

    /// The keys that callers are asked for: whatever else this process serves should ask for the same.
    pub fn keys(&self) -> Keys {
        self.shared.keys.clone()
    }

    /// Where the server can be reached.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Serves until `stop` is cancelled; then listens no more, lets requests in progress finish within the configured
    /// time, and returns how many connections had to be cut.
    pub async fn run(self, stop: CancellationToken) -> usize {
        let Self { shared, http, metrics, pages, tls, .. } = self;
        let ended = CancellationToken::new();
        let metrics_connections = TaskTracker::new();
        metrics_connections.spawn(shared.keys.clone().follow(ended.clone()));
        let pages = page::Pages::new(pages, &shared.keys, metrics.reach());
        metrics_connections.spawn(tls.clone().follow(ended.clone()));
        let door = page::Door { listener: metrics, welcome: tls.welcome(Spoken::Http1) };
        metrics_connections.spawn(page::serve(door, Arc::new(pages), METRICS_CONNECTIONS, ended.clone()));
        let room = Arc::new(Semaphore::new(shared.config.max_connections.get()));
        let accepting = TaskTracker::new();
        let app = connection::App::new(shared.clone()).behind(tls.welcome(Spoken::Http2));
        for listener in http {
            let app = app.reached(listener.reach());
            accepting.spawn(connection::accept(listener, app, room.clone(), stop.clone()));
        }
        stop.cancelled().await;
        accepting.close();
        accepting.wait().await;
        shared.drain.cancel();
        shared.connections.close();
        let cut = match tokio::time::timeout(shared.config.drain_timeout, shared.connections.wait()).await {
            Ok(()) => 0,
            Err(_) => shared.connections.len(),
        };
        ended.cancel();
        metrics_connections.close();
        cut
    }
}
