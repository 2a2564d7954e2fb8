//! POST requests of any other protocol, whose responses are read as they arrive, on kept connections.
//!
//! A response is not limited in size, because nothing of it is kept here.

use bytes::Bytes;
use http::{Method, header};
use parm_protocol::Error;
use parm_protocol::rest::Encoded;

use super::dial::Dialer;
use super::endpoint::Scheme;
use super::http::JSON;
use super::pool::{Answer, Pool};
use super::requests::{Requests, built};
use super::{Config, Endpoint};

/// Sends POST requests with JSON bodies to one server.
pub struct Posts(Requests);

/// A response whose body may still be arriving. Dropping it before its end closes the connection.
pub struct Arriving {
    status: u16,
    answer: Answer,
}

impl Posts {
    /// A client of the server at `endpoint`, which must speak HTTP. Nothing is sent yet.
    pub fn new(endpoint: &Endpoint, config: &Config) -> Result<Self, Error> {
        if endpoint.scheme != Scheme::Http {
            let message = format!("'{endpoint}' is not an HTTP server: use http://, https:// or unix:");
            return Err(Error::Malformed { message });
        }
        Ok(Self(Requests::new(Pool::http1(Dialer::new(endpoint, config)?, config)?, config)?))
    }

    /// Sends a request and waits for the head of its response.
    pub async fn post(&self, path: &str, body: Bytes) -> Result<Arriving, Error> {
        let permit = self.0.pool.permit()?;
        let request = self.0.request(Method::POST, path).header(header::CONTENT_TYPE, JSON);
        let response = self.0.pool.send(&built(request, Encoded::from(body))?, true, permit).await;
        let (head, answer) = response.map_err(|failure| self.0.error(failure))?.into_parts();
        Ok(Arriving { status: head.status.as_u16(), answer })
    }

    /// Returns how many requests were sent twice, because their kept connection ended without an answer. A server may have run
    /// both.
    pub fn repeated(&self) -> u64 {
        self.0.pool.repeated()
    }
}

impl Arriving {
    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The next bytes of the body; `None` after its end, when the connection is free again.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        match self.answer.frame().await {
            Ok(frame) => Ok(frame.and_then(|frame| frame.into_data().ok())),
            Err(failure) => {
                let (peer, message) = (self.answer.peer().to_owned(), failure.message());
                Err(Error::Transport { peer, message })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing::{answer, hear, serve_at};

    async fn listen() -> (TcpListener, Posts) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint: Endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let config = Config {
            token: Some(crate::client::Token::new("hush")),
            max_connections: NonZeroU32::MIN,
            ..Config::default()
        };
        (listener, Posts::new(&endpoint, &config).unwrap())
    }

    const BEGUN: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n";

    #[tokio::test]
    async fn chunks_arrive_before_the_response_ends() {
        let (listener, posts) = listen().await;
        let (continued, wait) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let heard = hear(&mut stream).await.unwrap();
            stream.write_all(BEGUN).await.unwrap();
            wait.await.unwrap();
            stream.write_all(b"1\r\nc\r\n0\r\n\r\n").await.unwrap();
            // The same connection gets the next request.
            hear(&mut stream).await;
            stream.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            heard
        });
        let mut first = posts.post("/v1/chat/completions", Bytes::from_static(b"{}")).await.unwrap();
        assert_eq!((first.status(), first.chunk().await.unwrap().unwrap()), (200, Bytes::from_static(b"ab")));
        let refused = posts.post("/", Bytes::from_static(b"{}")).await.err().unwrap();
        assert!(matches!(refused, Error::Overloaded { .. }), "a second connection: {refused}");
        continued.send(()).unwrap();
        assert_eq!(first.chunk().await.unwrap().unwrap(), Bytes::from_static(b"c"));
        assert_eq!(first.chunk().await.unwrap(), None);
        drop(first);
        let mut second = posts.post("/", Bytes::from_static(b"{}")).await.unwrap();
        assert_eq!((second.status(), second.chunk().await.unwrap()), (503, None));
        let heard = server.await.unwrap();
        assert!(heard.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{heard}");
        for header in
            ["authorization: Bearer hush\r\n", "content-type: application/json\r\n", "content-length: 2"]
        {
            assert!(heard.contains(header), "{header} is missing in {heard}");
        }
    }

    #[tokio::test]
    async fn request_that_is_sent_twice_is_counted() {
        let (listener, posts) = listen().await;
        // The server reads another request, which may have had its effect, and ends.
        let answer = || answer("200 OK", "");
        tokio::spawn(serve_at(listener, vec![vec![answer(), String::new()], vec![answer(), answer()]]));
        let mut counts = Vec::new();
        for _ in 0..3 {
            let mut answer = posts.post("/", Bytes::from_static(b"{}")).await.unwrap();
            assert_eq!(answer.chunk().await.unwrap(), None);
            counts.push(posts.repeated());
        }
        assert_eq!(counts, [0, 1, 1]);
    }

    #[test]
    fn other_transports_are_rejected() {
        let endpoint: Endpoint = "grpc://w:1".parse().unwrap();
        assert!(Posts::new(&endpoint, &Config::default()).is_err());
    }
}
