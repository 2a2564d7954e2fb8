//! Probes over HTTP/2: the signs of life of a server.

use std::future::poll_fn;
use std::sync::Arc;

use h2::Reason;
use http::{Method, StatusCode};
use parm_protocol::Error;
use parm_protocol::client::CallContext;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::calls::{FIRST, Pair, call, head, say};
use crate::client::{Config, connect};

#[tokio::test]
async fn probe_takes_any_sign_of_life() {
    for (status, more, alive) in [
        (Some(404), &[][..], true),
        (Some(415), &[], true),
        (Some(200), &[("grpc-status", "12")], true),
        (Some(503), &[("grpc-status", "12")], true),
        (Some(503), &[], false),
        (None, &[], true),
    ] {
        let pair = Pair::new(move |_, request, mut respond| async move {
            assert_eq!((request.method(), request.uri().path()), (&Method::GET, "/health"));
            match status {
                Some(status) => {
                    let mut answer = head(more);
                    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
                    respond.send_response(answer, true).unwrap();
                }
                None => respond.send_reset(Reason::PROTOCOL_ERROR),
            }
        })
        .await;
        assert_eq!(pair.client.is_ready().await.unwrap(), alive, "{status:?} {more:?}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("upstream+grpc://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let client = connect(&endpoint, &Config::default()).unwrap();
    assert!(matches!(client.is_ready().await, Err(Error::Unsent { .. })));
    let error = client.forward(call(true), CallContext::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unsent { .. }), "{error:?}");
}

#[tokio::test]
async fn probe_without_an_answer_gives_its_connection_up() {
    let arrived = Arc::new(Notify::new());
    let tells = arrived.clone();
    let pair = Pair::new(move |number, _, mut respond| {
        let tells = tells.clone();
        async move {
            if number > 0 {
                return say(respond, &[FIRST], &[("grpc-status", "0")]);
            }
            tells.notify_one();
            drop(poll_fn(|cx| respond.poll_reset(cx)).await);
        }
    })
    .await;
    tokio::select! {
        ready = pair.client.is_ready() => panic!("{ready:?}"),
        () = arrived.notified() => {}
    }
    pair.ask().await.unwrap();
    assert_eq!(pair.connections(), 2);
}
