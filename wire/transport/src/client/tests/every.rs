//! Promises of the real server and its clients over every transport.

use std::num::NonZeroU32;

use parking_lot::Mutex;

use super::*;
use crate::keys::{Digest, Entry, Role};
use crate::testing::clients;

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

#[tokio::test]
async fn models_are_loaded_and_unloaded_over_every_transport() {
    let keeper = Arc::<Keeper>::default();
    for (transport, client) in clients(Keys::none(), keeper.clone(), "none").await {
        assert_eq!(client.load_model(MODEL).await, Ok(()), "{transport}");
        assert_eq!(client.unload_model(MODEL).await, Ok(()), "{transport}");
        let told = std::mem::take(&mut *keeper.orders.lock());
        assert_eq!(told, ["load a b/c", "unload a b/c"], "{transport}");
        let error = client.load_model("x").await.unwrap_err();
        assert!(error.code() == Code::NotFound && error.to_string().contains("'x'"), "{transport}: {error}");
    }
}

/// A service that panics immediately for the id `now`, and in a spawned task for the id `later`.
async fn panics(request: InferRequest) -> Result<InferResponse, Error> {
    if request.id == "later" {
        tokio::task::yield_now().await;
    }
    assert!(!["now", "later"].contains(&request.id.as_str()), "the test asks for a panic");
    Ok(echo(request))
}

#[tokio::test]
async fn key_place_is_released_when_the_service_panics() {
    let one =
        Entry { concurrency: NonZeroU32::new(1), ..Entry::new("one", Role::Infer, Digest::of(b"hush")) };
    let service = Arc::new(Scripted(|request, _| panics(request)));
    for (transport, client) in clients(Keys::of(&[one]), service, "hush").await {
        for panics in ["now", "later"] {
            ask(&*client, panics).await.unwrap_err();
            // The panic may end the connection, and the client may notice before the place is free: it is rejected for
            // a moment.
            let answered = async {
                while let Err(error) = ask(&*client, "after").await {
                    let passing = [Code::TooManyRequests, Code::Unavailable].contains(&error.code());
                    assert!(passing, "{transport}: {error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let answered = tokio::time::timeout(Duration::from_secs(20), answered).await;
            assert!(answered.is_ok(), "{transport}, after a panic {panics}");
        }
    }
}
