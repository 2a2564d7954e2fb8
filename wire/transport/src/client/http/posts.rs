//! POST requests of any other protocol, whose responses are read as they arrive, on kept connections.
//!
//! A response is not limited in size, because nothing of it is kept here.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use parking_lot::Mutex;
use parm_protocol::Error;
use parm_protocol::rest::Encoded;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::{Failure, HttpConnection};
use super::{JSON, built};
use crate::client::dial::Dialer;
use crate::client::{Config, Endpoint, Scheme};

/// Sends POST requests with JSON bodies to one server. Cheap to clone.
#[derive(Clone)]
pub struct Posts(Arc<Line>);

struct Line {
    dialer: Dialer,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    idle: Mutex<Vec<HttpConnection>>,
    permits: Arc<Semaphore>,
    most: NonZeroU32,
}

/// A response whose body may still be arriving. Dropping it before its end closes the connection.
pub struct Arriving {
    status: u16,
    /// The connection, until the response has ended.
    rest: Option<(HttpConnection, Incoming)>,
    line: Arc<Line>,
    _permit: OwnedSemaphorePermit,
}

impl Posts {
    /// A client of the server at `endpoint`, which must speak HTTP. Nothing is sent yet.
    pub fn new(endpoint: &Endpoint, config: &Config) -> Result<Self, Error> {
        if endpoint.scheme != Scheme::Http {
            let message = format!("'{endpoint}' is not an HTTP server: use http://, https:// or unix:");
            return Err(Error::Malformed { message });
        }
        let dialer = Dialer::new(endpoint, config)?;
        let header = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| Error::Malformed {
                message: "the host or token has characters that a header cannot contain".into(),
            })
        };
        let authorization = match &config.token {
            None => None,
            Some(token) => {
                let mut value = header(&token.bearer())?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let host = header(dialer.authority())?;
        let (most, idle) = (config.max_connections, Mutex::default());
        let permits = Arc::new(Semaphore::new(most.get() as usize));
        Ok(Self(Arc::new(Line { dialer, host, authorization, idle, permits, most })))
    }

    /// Sends a request and waits for the head of its response.
    pub async fn post(&self, path: &str, body: Bytes) -> Result<Arriving, Error> {
        let line = &self.0;
        let permit = line.permits.clone().try_acquire_owned().map_err(|_| Error::Overloaded {
            message: format!("{} requests are in progress at {}, its limit", line.most, line.dialer.peer()),
            retry_after: std::time::Duration::from_secs(1),
        })?;
        let mut request =
            Request::post(path).header(header::HOST, &line.host).header(header::CONTENT_TYPE, JSON);
        if let Some(value) = &line.authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = built(request, Encoded::from(body))?;
        // A server may close an idle connection at the very moment it is used again: then a new connection gets the
        // request, once.
        let kept = line.take_idle();
        if let Some(mut connection) = kept
            && let Ok(response) = connection.head(request.clone()).await
        {
            return Ok(Arriving::new(line, connection, response, permit));
        }
        let socket = line.dialer.dial().await?;
        let failed = |error: hyper::Error| line.dialer.transport(error.to_string());
        let mut connection = HttpConnection::open(socket).await.map_err(failed)?;
        let response = connection.head(request).await.map_err(|message| line.dialer.transport(message))?;
        Ok(Arriving::new(line, connection, response, permit))
    }
}

impl Line {
    fn take_idle(&self) -> Option<HttpConnection> {
        loop {
            let mut connection = self.idle.lock().pop()?;
            if connection.is_alive() {
                return Some(connection);
            }
        }
    }
}

impl Arriving {
    fn new(
        line: &Arc<Line>,
        connection: HttpConnection,
        response: http::Response<Incoming>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let status = response.status().as_u16();
        Self { status, rest: Some((connection, response.into_body())), line: line.clone(), _permit: permit }
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The next bytes of the body; `None` after its regular end, when the connection is free again.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let Some((connection, body)) = &mut self.rest else { return Ok(None) };
        match connection.chunk(body).await {
            Ok(Some(bytes)) => Ok(Some(bytes)),
            Ok(None) => {
                if let Some((mut connection, _)) = self.rest.take()
                    && connection.is_reusable()
                {
                    self.line.idle.lock().push(connection);
                }
                Ok(None)
            }
            Err(Failure::NoAnswer(message) | Failure::Broken(message)) => {
                self.rest = None;
                Err(self.line.dialer.transport(message))
            }
            // Only responses that are collected have a limit.
            Err(Failure::TooLarge) => Err(self.line.dialer.transport("the response is too large")),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Reads a request without caring about its body, which is `{}`.
    async fn hear(stream: &mut TcpStream) -> String {
        let mut heard = Vec::new();
        while !heard.ends_with(b"{}") {
            assert!(stream.read_buf(&mut heard).await.unwrap() > 0);
        }
        String::from_utf8(heard).unwrap().to_lowercase()
    }

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

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

    #[tokio::test]
    async fn chunks_arrive_before_the_response_ends() {
        let (listener, posts) = listen().await;
        let (continued, wait) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let heard = hear(&mut stream).await;
            stream.write_all(&[HEAD, b"2\r\nab\r\n"].concat()).await.unwrap();
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
        assert!(heard.starts_with("post /v1/chat/completions http/1.1\r\n"), "{heard}");
        for header in
            ["authorization: bearer hush\r\n", "content-type: application/json\r\n", "content-length: 2"]
        {
            assert!(heard.contains(header), "{header} is missing in {heard}");
        }
    }

    #[tokio::test]
    async fn response_that_is_cut_off_is_an_error() {
        let (listener, posts) = listen().await;
        tokio::spawn(async move {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                hear(&mut stream).await;
                stream.write_all(&[HEAD, b"2\r\nab\r\n"].concat()).await.unwrap();
            }
        });
        let mut cut = posts.post("/", Bytes::from_static(b"{}")).await.unwrap();
        assert!(cut.chunk().await.unwrap().is_some());
        assert!(cut.chunk().await.is_err());
        assert_eq!(cut.chunk().await.unwrap(), None, "the error is reported once");
        drop(cut);
        assert!(posts.post("/", Bytes::from_static(b"{}")).await.is_ok(), "on a new connection");
    }

    #[test]
    fn other_transports_are_rejected() {
        let endpoint: Endpoint = "grpc://w:1".parse().unwrap();
        assert!(Posts::new(&endpoint, &Config::default()).is_err());
    }
}
