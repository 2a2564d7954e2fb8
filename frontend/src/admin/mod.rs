//! Admin API: shows the state of the frontend and changes it at run time.
//!
//! It is off unless configured, and listens on an address of its own, so that a firewall can keep clients away from it.

mod access;
mod changes;
mod guard;
mod instances;
mod page;
mod queries;
mod recording;
mod refusal;
mod settings;
mod stream;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::middleware::{from_fn_with_state, map_request, map_response};
use axum::response::Response;
use axum::{Extension, Router};
use futures::StreamExt;
use futures::stream::unfold;
use parm_transport::client::Token;
use parm_transport::keys::Keys;
use parm_transport::listening::{ConnectionLimits, Listener, OPERATOR_CONNECTIONS, Room, Station};
use parm_transport::tls::Tls;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use self::guard::Gate;
use self::stream::FollowedFiles;
use crate::error::Error;
use crate::serve::Frontend;

pub use self::access::ROUTES;
pub use self::changes::{Difference, differences};

/// Settings and lists are small; a larger body is a mistake.
const MAX_BODY: usize = 1 << 20;

/// Settings of the admin API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the admin API, such as `127.0.0.1:8003`. Default: none, the API is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Key of the role `control` for the admin API only, next to those of `server.keys_file`. An address that other machines
    /// can reach needs one of the two. Default: none.
    #[serde(skip_serializing)]
    pub token: Option<Token>,
    /// Host names under which browsers reach the address, without port. Other names but `localhost` are rejected. Default:
    /// none.
    // Any site can give its own name this address (DNS rebinding).
    pub hosts: Vec<String>,
}

/// Admin API of a frontend.
pub struct Api {
    frontend: Frontend,
    keys: Keys,
    tls: Tls,
    connection_age: Duration,
}

/// The admin API with its listener.
pub struct Bound {
    station: Station,
    router: Router,
}

impl Api {
    pub(crate) fn new(frontend: Frontend) -> Self {
        Self { frontend, keys: Keys::none(), tls: Tls::default(), connection_age: Duration::ZERO }
    }

    /// Also accepts the keys of the frontend's own clients.
    pub fn guarded_by(self, keys: Keys) -> Self {
        Self { keys, ..self }
    }

    /// Serves over TLS as configured.
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls, ..self }
    }

    /// Closes connections at this age (+-10 %) once their requests are answered; zero disables the limit.
    pub fn with_connection_age(self, connection_age: Duration) -> Self {
        Self { connection_age, ..self }
    }

    fn gate(&self) -> Gate {
        Gate::new(self.keys.clone(), self.frontend.core.config.admin.token.as_ref())
    }

    /// Listens on the configured address; `None` if there is none.
    pub async fn bind(self) -> Result<Option<Bound>, Error> {
        let config = &self.frontend.core.config.admin;
        let Some(address) = config.address else { return Ok(None) };
        if !self.gate().allows(address) {
            return Err(Error::OpenAdmin { address });
        }
        let listener = Listener::tcp(address)
            .await
            .map_err(|error| Error::AdminAddress { address, reason: error.to_string() })?;
        let room = Room::new(OPERATOR_CONNECTIONS, "64 connections of the admin address");
        let station =
            Station::new(listener, &self.tls, ConnectionLimits::operators(self.connection_age), room);
        Ok(Some(Bound { station, router: self.router() }))
    }

    /// Returns the routes, for servers of the embedding program. From then on the frontend keeps frames for its watchers.
    pub fn router(self) -> Router {
        self.frontend.start_frames();
        let files = FollowedFiles { keys: self.keys.clone(), tls: self.tls.clone() };
        let hosts = Arc::<[String]>::from(self.frontend.core.config.admin.hosts.clone());
        let gate = self.gate();
        let api = access::api()
            .router
            .layer(map_response(uncached))
            .layer(map_request(in_time))
            .layer(Extension(files));
        let api = api.layer(DefaultBodyLimit::max(MAX_BODY));
        access::pages()
            .router
            .merge(api)
            .layer(from_fn_with_state(gate, guard::check_key))
            .layer(from_fn_with_state(hosts, guard::check_origin))
            .with_state(self.frontend)
    }
}

/// Prevents caching: responses show the current state.
async fn uncached(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Bound {
    /// Local address, with the actual port if 0 was configured.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.station.listener().address()
    }

    /// Serves until `shutdown` completes, then lets requests in progress finish for a few seconds.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        self.station.serve(self.router, shutdown).await;
    }
}

/// Time for a whole body to arrive.
const LIMIT: Duration = Duration::from_secs(10);

/// Wraps the request's body so that it fails once it takes too long: a body that never ends must not hold its connection.
async fn in_time(request: Request) -> Request {
    request.map(|body| {
        let parts = Some((body.into_data_stream(), Box::pin(sleep(LIMIT))));
        Body::from_stream(unfold(parts, |parts| async {
            let (mut data, mut due) = parts?;
            tokio::select! {
                part = data.next() => Some((part?.map_err(io::Error::other), Some((data, due)))),
                () = &mut due => Some((Err(late()), None)),
            }
        }))
    })
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("request body timed out after {LIMIT:?}: send it faster"))
}
