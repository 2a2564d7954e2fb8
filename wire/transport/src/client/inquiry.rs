//! An HTTP/1.1 request whose response is read as it arrives, one connection per request.
//!
//! Used for servers that are not instances, such as the Kubernetes API, and for responses without a fixed end.

use std::io;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

use super::Token;

/// A byte stream of any kind.
pub trait Pipe: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Pipe for T {}

/// A request.
#[derive(Clone, Debug)]
pub struct Inquiry<'a> {
    /// Value of the `host` header.
    pub authority: &'a str,
    /// The path, with the query.
    pub path: &'a str,
    /// Sent as `authorization: Bearer KEY`.
    pub token: Option<&'a Token>,
}

/// A response whose body may still be arriving. Dropping it closes the connection.
#[derive(Debug)]
pub struct Hearing {
    status: u16,
    body: Incoming,
    /// Reads and writes while the response arrives.
    _driver: AbortOnDropHandle<()>,
}

impl Inquiry<'_> {
    /// Sends the request, and waits for the head of the response. Must be called within a tokio runtime.
    pub async fn ask(&self, pipe: Box<dyn Pipe>) -> io::Result<Hearing> {
        let mut request = Request::get(self.path).header(header::HOST, self.authority);
        request = request.header(header::ACCEPT, "application/json");
        if let Some(token) = self.token {
            let mut value = HeaderValue::from_str(&token.bearer()).map_err(|_| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the token has characters that a header cannot contain",
                )
            })?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(pipe)).await.map_err(io::Error::other)?;
        let driver = AbortOnDropHandle::new(tokio::spawn(async move {
            // An error shows in the response.
            let _ = connection.await;
        }));
        let (head, body) = sender.send_request(request).await.map_err(io::Error::other)?.into_parts();
        Ok(Hearing { status: head.status.as_u16(), body, _driver: driver })
    }
}

impl Hearing {
    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The next bytes of the body; `None` after its regular end.
    pub async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    /// Sends a request to a server that answers with these bytes and then closes the connection. Returns the request
    /// and the result.
    async fn asked(answer: &'static [u8]) -> (String, io::Result<Vec<u8>>) {
        let (ours, theirs) = tokio::io::duplex(1024);
        let server = tokio::spawn(serve(theirs, answer));
        let token = Token::new("secret");
        let inquiry = Inquiry { authority: "api:443", path: "/apis?watch=1", token: Some(&token) };
        let read = async {
            let mut hearing = inquiry.ask(Box::new(ours)).await?;
            assert_eq!(hearing.status(), 200);
            let mut body = Vec::new();
            while let Some(chunk) = hearing.chunk().await? {
                body.extend_from_slice(&chunk);
            }
            Ok(body)
        };
        let read = read.await;
        (server.await.unwrap(), read)
    }

    async fn serve(mut pipe: DuplexStream, answer: &'static [u8]) -> String {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(pipe.read_u8().await.unwrap());
        }
        pipe.write_all(answer).await.unwrap();
        String::from_utf8(request).unwrap().to_lowercase()
    }

    #[tokio::test]
    async fn response_is_read_as_it_arrives_and_a_cut_is_an_error() {
        let whole = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        let (request, read) = asked(whole).await;
        assert_eq!(read.unwrap(), b"abc");
        assert!(request.starts_with("get /apis?watch=1 http/1.1\r\n"), "{request}");
        for header in
            ["host: api:443\r\n", "authorization: bearer secret\r\n", "accept: application/json\r\n"]
        {
            assert!(request.contains(header), "{header} is missing in {request}");
        }
        let severed = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n";
        let (_, read) = asked(severed).await;
        assert!(read.is_err(), "{read:?}");
    }
}
