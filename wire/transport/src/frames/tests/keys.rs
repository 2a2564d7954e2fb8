//! Requests of one connection whose key is limited, changed or removed, and the end of old connections.

use std::num::NonZeroU32;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::*;
use crate::frames::Limits;
use crate::keys::{Digest, Entry, Keys, Role};

fn entry() -> Entry {
    Entry::new("frontend", Role::Infer, Digest::of(b"hush"))
}

/// A connection with this key.
fn connect<S: InferenceService>(keys: &Keys, service: S) -> Connection {
    let headers = HeaderMap::from_iter([(AUTHORIZATION, "Bearer hush".parse().unwrap())]);
    let limits = Limits { caller: keys.authenticate(&headers).unwrap(), ..Config::default().into() };
    let (near, far) = UnixStream::pair().unwrap();
    let config = Config::default();
    let connection = client(near, &config);
    tokio::spawn(serve_end(far, service, limits));
    connection
}

#[tokio::test]
async fn removed_key_ends_its_connection() {
    let keys = Keys::of(&[entry()]);
    let connection = connect(&keys, echoing());
    assert_eq!(connection.infer(&request("a", 8), ANY_TIME).await.unwrap().id, "a");
    keys.replace(&[Entry::new("other", Role::Infer, Digest::of(b"other"))]);
    let error = connection.infer(&request("b", 8), ANY_TIME).await.unwrap_err();
    assert_eq!(error.code(), Code::Unauthenticated);
    while connection.is_open() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn key_with_another_role_is_rejected() {
    let keys = Keys::of(&[entry()]);
    let connection = connect(&keys, echoing());
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
    assert!(connection.is_open(), "the limit leaves the connection open");
    drop(held);
    // The slot becomes free as soon as the server has stopped the request.
    while let Err(error) = connection.infer(&request("c", 8), ANY_TIME).await {
        assert_eq!(error.code(), Code::TooManyRequests);
    }
}

#[tokio::test(start_paused = true)]
async fn old_connection_ends_after_its_requests() {
    let limits = Limits { age: Some(Duration::from_secs(10)), ..Config::default().into() };
    let (near, far) = UnixStream::pair().unwrap();
    let config = Config::default();
    let connection = client(near, &config);
    let service = Scripted(|request: InferRequest, _| async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(echo(request))
    });
    let serving = tokio::spawn(serve_end(far, service, limits));
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(connection.is_open());
    assert_eq!(connection.infer(&request("a", 8), ANY_TIME).await.unwrap().id, "a");
    assert!(!connection.is_open(), "eleven seconds have passed");
    serving.await.unwrap().unwrap();
}
