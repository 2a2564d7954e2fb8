//! Requests whose task panics: their place in the key's concurrency limit is released.

use std::num::NonZeroU32;
use std::time::Duration;

use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Code, Error, InferRequest, ModelRef, Parameters};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::client::{self, Token};
use crate::keys::{Digest, Entry, Keys, Role};
use crate::scripted::{Scripted, echo};
use crate::server::{Config, Server};

fn request(id: &str) -> InferRequest {
    InferRequest {
        model: ModelRef::latest("m"),
        id: id.into(),
        parameters: Parameters::new(),
        inputs: vec![],
        outputs: vec![],
    }
}

async fn ask(client: &dyn Client, id: &str) -> Result<String, Error> {
    Ok(client.infer(request(id), CallContext::default()).await?.id)
}

/// A service that panics immediately for the id `now`, and in a spawned task for the id `later`.
async fn answer(request: InferRequest) -> Result<parm_protocol::InferResponse, Error> {
    if request.id == "later" {
        tokio::task::yield_now().await;
    }
    assert!(!["now", "later"].contains(&request.id.as_str()), "the test asks for a panic");
    Ok(echo(request))
}

#[tokio::test]
async fn key_place_is_released_when_the_service_panics() {
    let entry =
        Entry { concurrency: NonZeroU32::new(1), ..Entry::new("one", Role::Infer, Digest::of(b"hush")) };
    let local = "127.0.0.1:0".parse().unwrap();
    let config = Config { http: local, grpc: local, metrics: local, ..Config::default() };
    let service = Arc::new(Scripted(|request, _| answer(request)));
    let server = Server::bind_for(Keys::of(&[entry]), config, service).await.unwrap();
    let (addresses, stop) = (server.addresses(), CancellationToken::new());
    let serving = tokio::spawn(server.run(stop.clone()));
    let urls = [
        format!("http://{}", addresses.http),
        format!("grpc://{}", addresses.grpc),
        format!("frames://{}", addresses.http),
    ];
    for url in urls {
        let config = client::Config { token: Some(Token::new("hush")), ..Default::default() };
        let client = client::connect(&url.parse().unwrap(), &config).unwrap();
        for panics in ["now", "later"] {
            ask(&*client, panics).await.unwrap_err();
            // The panic may end the connection, and the client may notice before the place is free: it is rejected for
            // a moment.
            let answered = async {
                loop {
                    match ask(&*client, "after").await {
                        Ok(id) => break id,
                        Err(error) => {
                            let passing = [Code::TooManyRequests, Code::Unavailable].contains(&error.code());
                            assert!(passing, "{url}: {error}");
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let answered = tokio::time::timeout(Duration::from_secs(20), answered).await;
            assert_eq!(answered.as_deref(), Ok("after"), "{url}, after a panic {panics}");
        }
    }
    stop.cancel();
    serving.await.unwrap();
}
