//! Requests of one connection whose key is limited, changed, or taken out, and the end of connections that are old.

use std::num::NonZeroU32;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::*;
use crate::frames::Limits;
use crate::keys::{Digest, Entry, Keys, Role};

fn entry() -> Entry {
    Entry::new("frontend", Role::Infer, Digest::of(b"hush"))
}

/// A connection of who has the key.
fn connect<S: InferenceService>(keys: &Keys, service: S) -> Connection {
    let headers = HeaderMap::from_iter([(AUTHORIZATION, "Bearer hush".parse().unwrap())]);
    let limits = Limits { caller: keys.authenticate(&headers).unwrap(), ..Config::default().into() };
    let (near, far) = UnixStream::pair().unwrap();
    let config = Config::default();
    let connection = Connection::new("pair".into(), near.into(), b"", Negotiated::of(&config), &config);
    tokio::spawn(async move {
        serve(far.into(), b"", Arc::new(service), &limits, CancellationToken::new()).await
    });
    connection
}

#[tokio::test]
async fn a_key_that_is_taken_out_ends_what_it_opened() {
    let keys = Keys::of(&[entry()]);
    let connection = connect(&keys, Scripted(|request, _| async move { Ok(echo(request)) }));
    assert_eq!(connection.infer(&request("a", 8), ANY_TIME).await.unwrap().id, "a");
    keys.replace(&[Entry::new("other", Role::Infer, Digest::of(b"other"))]);
    let error = connection.infer(&request("b", 8), ANY_TIME).await.unwrap_err();
    assert_eq!(error.code(), Code::Unauthenticated);
    while connection.is_open() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_key_of_another_role_asks_for_no_predictions_any_more() {
    let keys = Keys::of(&[entry()]);
    let connection = connect(&keys, Scripted(|request, _| async move { Ok(echo(request)) }));
    keys.replace(&[Entry { role: Role::Read, ..entry() }]);
    let error = connection.infer(&request("b", 8), ANY_TIME).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn requests_of_one_connection_are_limited_one_by_one() {
    let keys = Keys::of(&[Entry { concurrency: NonZeroU32::new(1), ..entry() }]);
    let service = Scripted(|request: InferRequest, _| async move {
        if request.id == "held" {
            std::future::pending::<()>().await;
        }
        Ok(echo(request))
    });
    let connection = connect(&keys, service);
    let ask = request("held", 8);
    let mut held = Box::pin(connection.infer(&ask, ANY_TIME));
    assert!(futures::poll!(held.as_mut()).is_pending());
    let error = connection.infer(&request("b", 8), ANY_TIME).await.unwrap_err();
    assert_eq!(error.code(), Code::TooManyRequests);
    assert!(connection.is_open(), "a limit ends no connection");
    drop(held);
    // It makes room as soon as the server has stopped it.
    while let Err(error) = connection.infer(&request("c", 8), ANY_TIME).await {
        assert_eq!(error.code(), Code::TooManyRequests);
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_ends_once_its_requests_are_answered() {
    let limits = Limits { age: Some(Duration::from_secs(10)), ..Config::default().into() };
    let (near, far) = UnixStream::pair().unwrap();
    let config = Config::default();
    let connection = Connection::new("pair".into(), near.into(), b"", Negotiated::of(&config), &config);
    let service = Scripted(|request: InferRequest, _| async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(echo(request))
    });
    let serving = tokio::spawn(async move {
        serve(far.into(), b"", Arc::new(service), &limits, CancellationToken::new()).await
    });
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(connection.is_open());
    assert_eq!(connection.infer(&request("a", 8), ANY_TIME).await.unwrap().id, "a");
    assert!(!connection.is_open(), "eleven seconds have passed");
    serving.await.unwrap().unwrap();
}
