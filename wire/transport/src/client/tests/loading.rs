//! Loads and unloads models of the real server over every transport.

use parking_lot::Mutex;

use super::*;
use crate::keys::{Digest, Entry, Keys, Role};
use crate::scripted::any_model;
use crate::server;

/// A service that records orders. Its one model has a name that a path must escape.
#[derive(Default)]
struct Keeper {
    orders: Mutex<Vec<String>>,
}

const MODEL: &str = "a b/c";

impl Keeper {
    fn order(&self, order: &str, name: &str) -> Result<(), Error> {
        if name != MODEL {
            return Err(Error::UnknownModel { name: name.into() });
        }
        self.orders.lock().push(format!("{order} {name}"));
        Ok(())
    }
}

impl InferenceService for Keeper {
    any_model!();
    fn server_metadata(&self) -> ServerMetadata {
        ServerMetadata { extensions: vec![EXTENSION.into()], ..ServerMetadata::default() }
    }
    async fn load_model(&self, name: &str) -> Result<(), Error> {
        self.order("load", name)
    }
    async fn unload_model(&self, name: &str) -> Result<(), Error> {
        self.order("unload", name)
    }
    async fn infer(&self, request: InferRequest, _: Context) -> Result<InferResponse, Error> {
        Ok(echo(request))
    }
}

/// A server whose models only a client with `hush` may change, and clients of it with a token, one per transport.
async fn clients(keeper: &Arc<Keeper>, token: &str) -> Vec<(&'static str, Arc<dyn Client>)> {
    let key = |key: &str, role| Entry::new(format!("{key}-er"), role, Digest::of(key.as_bytes()));
    let keys = Keys::of(&[key("hush", Role::Control), key("aloud", Role::Infer)]);
    let any = "127.0.0.1:0".parse().unwrap();
    let config = server::Config { http: any, grpc: any, metrics: any, ..server::Config::default() };
    let server = server::Server::bind_for(keys, config, keeper.clone()).await.unwrap();
    let at = server.addresses();
    tokio::spawn(server.run(CancellationToken::new()));
    let client = |(name, endpoint, transport): (&'static str, String, Prefer)| {
        let config = Config { token: Some(Token::new(token)), transport, ..Config::default() };
        (name, connect(&endpoint.parse().unwrap(), &config).unwrap())
    };
    let transports = [
        ("http", format!("http://{}", at.http), Prefer::Http),
        ("auto", format!("http://{}", at.http), Prefer::Auto),
        ("frames", format!("frames://{}", at.http), Prefer::Auto),
        ("grpc", format!("grpc://{}", at.grpc), Prefer::Auto),
    ];
    transports.map(client).into()
}

#[tokio::test]
async fn models_are_loaded_and_unloaded_over_every_transport() {
    let keeper = Arc::<Keeper>::default();
    for (transport, client) in clients(&keeper, "hush").await {
        assert_eq!(client.load_model(MODEL).await, Ok(()), "{transport}");
        assert_eq!(client.unload_model(MODEL).await, Ok(()), "{transport}");
        let told = std::mem::take(&mut *keeper.orders.lock());
        assert_eq!(told, ["load a b/c", "unload a b/c"], "{transport}");
        let error = client.load_model("x").await.unwrap_err();
        assert!(error.code() == Code::NotFound && error.to_string().contains("'x'"), "{transport}: {error}");
    }
}

#[tokio::test]
async fn inference_key_changes_no_model_over_any_transport() {
    let keeper = Arc::<Keeper>::default();
    for (transport, client) in clients(&keeper, "aloud").await {
        for outcome in [client.load_model(MODEL).await, client.unload_model(MODEL).await] {
            let code = outcome.map_err(|error| error.code());
            assert_eq!(code, Err(Code::PermissionDenied), "{transport}");
        }
    }
    assert_eq!(*keeper.orders.lock(), [""; 0]);
}
