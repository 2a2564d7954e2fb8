//! Probes of servers that end connections by age.

use ::http::{HeaderMap, Response};
use tokio::net::TcpListener;

use crate::client::{Config, connect};

/// A message that says "ready".
const READY: &[u8] = b"\0\0\0\0\x02\x08\x01";

#[tokio::test]
async fn probe_on_a_connection_that_its_server_ends_gets_another() {
    for scheme in ["grpc", "upstream+grpc"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("{scheme}://{}", listener.local_addr().unwrap()).parse().unwrap();
        let client = connect(&endpoint, &Config::default()).unwrap();
        tokio::spawn(serve(listener));
        for number in 0..3 {
            assert!(matches!(client.is_ready().await, Ok(true)), "{scheme}: probe {number}");
        }
    }
}

/// Answers the first request of each connection, which ends as its second one arrives.
async fn serve(listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_, mut respond) = connection.accept().await.unwrap().unwrap();
        let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let mut body = respond.send_response(head, false).unwrap();
        body.send_data(bytes::Bytes::from_static(READY), false).unwrap();
        let status = ("grpc-status".parse().unwrap(), "0".parse().unwrap());
        body.send_trailers(HeaderMap::from_iter([status])).unwrap();
        let _ = connection.accept().await;
    }
}
