//! The server of the protocol, generic over [`InferenceService`]: frontend and worker use the same one.
//!
//! Connections are those of [`listening`](crate::listening). Reading order: `requests` lets them in with `shared`, `rest` and `grpc` answer them, `forward`
//! passes them on, `upgrade` takes a connection over to frames, `status` maps errors, `page` serves metrics, `guest` lets another
//! protocol in.

mod body;
mod call;
mod config;
mod forward;
mod grpc;
mod guest;
mod page;
mod requests;
mod rest;
mod shared;
mod status;
mod upgrade;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use config::{Address, Config, ModelControl};
pub use guest::{Guest, GuestBody, GuestFuture};
pub use page::Page;
pub use status::refusal;
pub(crate) use status::{grpc as status_of, trailers};
#[cfg(test)]
pub(crate) use upgrade::upgrade;

use parm_protocol::{Error, InferenceService};
use shared::Reach;
pub(crate) use shared::Shared;

use crate::keys::Keys;
use crate::listening::{ConnectionLimits, Listener, OPERATOR_CONNECTIONS, Room, Station};
use crate::tls::Tls;

/// A server with bound addresses that does not serve yet.
pub struct Server<S> {
    shared: Arc<Shared<S>>,
    http: Vec<Listener>,
    metrics: Listener,
    pages: Vec<Page>,
    guest: Option<Arc<dyn Guest>>,
    tls: Tls,
    addresses: Addresses,
}

/// The addresses of a server; port 0 is resolved.
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
        let http = Listener::tcp(config.http.0).await.map_err(refused(config.http))?;
        let grpc = Listener::tcp(config.grpc.0).await.map_err(refused(config.grpc))?;
        let metrics = Listener::tcp(config.metrics.0).await.map_err(refused(config.metrics))?;
        let addresses = Addresses {
            http: http.address().map_err(refused(config.http))?,
            grpc: grpc.address().map_err(refused(config.grpc))?,
            metrics: metrics.address().map_err(refused(config.metrics))?,
        };
        // Every listener may serve both, since gRPC is HTTP/2 with its own paths. Two ports are kept because clients
        // expect them.
        let mut listeners = vec![http, grpc];
        if let Some(path) = &config.unix {
            listeners.push(Listener::unix(path).map_err(refused(path.display()))?);
        }
        let shared = Shared::new(config, service, keys);
        for listener in &listeners {
            if Reach::of(listener) == Reach::Open && !shared.keys.are_asked_for() {
                tracing::warn!(
                    address = %listener,
                    "any client of this address may request predictions, but not load or unload models: set server.keys_file"
                );
            }
        }
        Ok(Self {
            shared,
            http: listeners,
            metrics,
            pages: Vec::new(),
            guest: None,
            tls: Tls::default(),
            addresses,
        })
    }

    /// Speaks TLS on every address. The Unix socket stays plain.
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Serves an additional page on the metrics address.
    pub fn with_page(mut self, page: Page) -> Self {
        self.pages.push(page);
        self
    }

    /// Serves the routes of another protocol on the addresses of clients.
    pub fn with_guest(mut self, guest: Arc<dyn Guest>) -> Self {
        self.guest = Some(guest);
        self
    }

    /// The keys of callers: other listeners of the process should use the same.
    pub fn keys(&self) -> Keys {
        self.shared.keys.clone()
    }

    /// The addresses of the server.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Serves until `stop` is cancelled. Then stops listening, lets requests in progress finish within the drain
    /// timeout, and returns the number of connections that had to be cut.
    pub async fn run(self, stop: CancellationToken) -> usize {
        let Self { shared, http, metrics, pages, guest, tls, .. } = self;
        let ended = CancellationToken::new();
        let metrics_connections = TaskTracker::new();
        metrics_connections.spawn(shared.keys.clone().follow(ended.clone()));
        metrics_connections.spawn(tls.clone().follow(ended.clone()));
        let pages = page::Pages::new(pages, &shared.keys, Reach::of(&metrics));
        let room = Room::new(OPERATOR_CONNECTIONS, "64 connections of the metrics address");
        let limits = ConnectionLimits::operators(shared.config.max_connection_age);
        let metrics = Station::new(metrics, &tls, limits, room);
        metrics_connections.spawn(metrics.serve(page::service(pages), ended.clone().cancelled_owned()));
        let room = Room::new(shared.config.max_connections.get(), "server.max_connections");
        let accepting = TaskTracker::new();
        for listener in http {
            let app = requests::service(shared.clone(), guest.clone(), Reach::of(&listener));
            let station = Station::new(listener, &tls, shared.config.limits(), room.clone());
            let station = station.together(shared.drain.clone(), shared.ages.clone());
            accepting.spawn(station.accept(app, stop.clone().cancelled_owned()));
        }
        stop.cancelled().await;
        accepting.close();
        accepting.wait().await;
        let cut = shared.drain.end(shared.config.drain_timeout).await;
        ended.cancel();
        metrics_connections.close();
        cut
    }
}

/// The error of an address that cannot be bound.
fn refused(address: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Error {
    move |error| {
        let remedy = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                ": choose another, or end the process that listens there (ss -ltnp)"
            }
            _ => "",
        };
        Error::Listen { address: address.to_string(), message: format!("{error}{remedy}") }
    }
}
