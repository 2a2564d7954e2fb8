//! Clients over any of the transports, behind the one trait [`Client`].

/// The methods of a [`Client`] whose calls other than inference use its field `http`.
macro_rules! other_calls_over_http {
    () => {
        fn peer(&self) -> &str {
            self.http.peer()
        }

        fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
            self.http.is_ready()
        }

        fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
            self.http.server_metadata()
        }

        fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
            self.http.model_metadata(model)
        }

        fn model_config<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelConfig, Error>> {
            self.http.model_config(model)
        }

        fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
            self.http.repository_index()
        }

        fn load_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
            self.http.load_model(name)
        }

        fn unload_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
            self.http.unload_model(name)
        }
    };
}

mod auto;
mod config;
mod deadline;
mod dial;
mod endpoint;
mod frames;
mod grpc;
mod http;
mod http1;
mod http2;
mod inquiry;
mod lines;
mod pool;
mod posts;
mod status;
#[cfg(test)]
mod tests;
mod token;
mod upstream;

use std::sync::Arc;

pub use self::config::{Config, Prefer, Tensors, UpstreamConfig};
pub use self::endpoint::{DialAddress, Endpoint, Scheme};
pub use self::frames::Frames;
pub use self::grpc::Grpc;
pub use self::http::Http;
pub use self::inquiry::{Hearing, Inquiry, Pipe};
pub use self::lines::Lines;
pub use self::posts::{Arriving, Posts};
pub use self::token::Token;
pub use self::upstream::{ROUTE, Upstream};

use parm_protocol::Error;
use parm_protocol::client::Client;

use self::auto::Auto;
use self::dial::Dialer;

/// A client of the server at `endpoint`. Nothing is sent yet: an unreachable server shows in the first request. Must be
/// called within a tokio runtime.
pub fn connect(endpoint: &Endpoint, config: &Config) -> Result<Arc<dyn Client>, Error> {
    let dialer = Dialer::new(endpoint, config)?;
    let http = || Http::new(dialer.clone(), config);
    let frames = || Ok::<_, Error>(Frames::new(http()?, config.clone()));
    Ok(match (endpoint.scheme, config.transport) {
        (Scheme::Grpc, _) => Arc::new(Grpc::new(dialer, config)?),
        (Scheme::Upstream, _) => Arc::new(Upstream::new(dialer, config, false)?),
        (Scheme::UpstreamHttp2, _) => Arc::new(Upstream::new(dialer, config, true)?),
        (Scheme::Frames, _) => Arc::new(frames()?),
        (Scheme::Http, Prefer::Http) => Arc::new(http()?),
        (Scheme::Http, Prefer::Auto) => Arc::new(Auto::new(http()?, frames()?)),
    })
}
