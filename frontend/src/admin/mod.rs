//! The admin API: what runs where, and changes to it without a restart.
//!
//! It listens on an address of its own, so that it can be kept from clients by the network; off unless configured.

mod auth;
mod change;
mod instances;
mod origin;
mod page;
mod queries;
mod recording;
mod refusal;
mod settings;
mod stream;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::{delete, get, post};
use parm_wire::client::Token;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

pub(crate) use self::auth::Caller;
use crate::error::Error;
use crate::serve::Frontend;

/// Settings and lists are small; more is a mistake.
const MAX_BODY: usize = 1 << 20;

/// Settings of the admin API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address to listen on, such as `127.0.0.1:8003`. Default: none, the API is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Token that callers must send (`authorization: Bearer TOKEN`); needed where other machines can reach the address.
    /// Default: none. Left out of a dumped configuration.
    #[serde(skip_serializing)]
    pub token: Option<Token>,
    /// Names under which browsers reach the address beside `localhost`, without port. Others are refused, for any site can
    /// give its own name this address. Default: none.
    pub hosts: Vec<String>,
}

/// The admin API of a frontend.
pub struct Api {
    frontend: Frontend,
}

/// The admin API, listening.
pub struct Bound {
    listener: TcpListener,
    router: Router,
}

impl Api {
    pub(crate) fn new(frontend: Frontend) -> Self {
        Self { frontend }
    }

    /// Listens on the configured address; `None` if there is none.
    pub async fn bind(self) -> Result<Option<Bound>, Error> {
        let config = &self.frontend.core.config.admin;
        let Some(address) = config.address else { return Ok(None) };
        if !address.ip().is_loopback() && config.token.is_none() {
            return Err(Error::OpenAdmin { address });
        }
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Error::AdminAddress { address, reason: error.to_string() })?;
        Ok(Some(Bound { listener, router: self.router() }))
    }

    /// The routes, for servers of the caller's own.
    pub fn router(self) -> Router {
        let Config { token, hosts, .. } = self.frontend.core.config.admin.clone();
        let api = Router::new()
            .route("/admin/v1/instances", get(instances::list).post(instances::add))
            .route("/admin/v1/instances/{number}", delete(instances::remove).get(instances::show))
            .route("/admin/v1/instances/{number}/{order}", post(instances::order))
            .route("/admin/v1/queries", get(queries::list))
            .route("/admin/v1/queries/{id}", get(queries::show))
            .route("/admin/v1/recording", get(recording::stream))
            .route("/admin/v1/stream", get(stream::watch))
            .route("/admin/v1/settings", get(settings::show).patch(settings::change))
            .route(
                "/admin/v1/settings/{model}",
                get(settings::show_model).patch(settings::change_model).delete(settings::forget_model),
            )
            .fallback(refusal::unknown_path)
            .method_not_allowed_fallback(refusal::wrong_method)
            .layer(from_fn_with_state(token, auth::check))
            .layer(map_response(uncached))
            .layer(DefaultBodyLimit::max(MAX_BODY));
        Router::new()
            .route("/", get(page::index))
            .route("/page/{name}", get(page::file))
            .method_not_allowed_fallback(refusal::wrong_method)
            .merge(api)
            .layer(from_fn_with_state(Arc::<[String]>::from(hosts), origin::check))
            .with_state(self.frontend)
    }
}

/// What is told is of this moment.
async fn uncached(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Bound {
    /// The address, with the port that was free if 0 was asked for.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` comes.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        axum::serve(self.listener, self.router).with_graceful_shutdown(shutdown).await
    }
}
