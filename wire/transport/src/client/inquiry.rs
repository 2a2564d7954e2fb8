//! A question over HTTP/1.1 whose answer is read as it comes: for servers that are no instances, such as Kubernetes' own,
//! and for answers that end when something else happens. One connection for one question.

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

/// A connection, whatever it is made of.
pub trait Pipe: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Pipe for T {}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Inquiry<'a> {
    /// For the `host` header.
    pub authority: &'a str,
    /// The path, with the query.
    pub path: &'a str,
    /// Sent as `authorization: Bearer KEY`.
    pub token: Option<&'a Token>,
}

/// An answer whose body may still be on its way. Dropping it closes the connection.
#[derive(Debug)]
pub struct Hearing {
    status: u16,
    body: Incoming,
    /// Reads and writes while the answer is waited for.
    _driver: AbortOnDropHandle<()>,
}

impl Inquiry<'_> {
    /// Asks on a connection, and waits for the head of the answer. Must be called within a tokio runtime.
    pub async fn ask(&self, pipe: Box<dyn Pipe>) -> io::Result<Hearing> {
        let mut request = Request::get(self.path).header(header::HOST, self.authority);
        request = request.header(header::ACCEPT, "application/json");
        if let Some(token) = self.token {
            let mut value = HeaderValue::from_str(&token.bearer()).map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidInput, "the token has characters that no header takes")
            })?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(pipe)).await.map_err(io::Error::other)?;
        let driver = AbortOnDropHandle::new(tokio::spawn(async move {
            // What went wrong shows in the answer.
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

    /// The next bytes of the body; none once it ended as it should.
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

    /// Asks a server that answers with these bytes and then ends the connection; what it was asked, and what came of it.
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
    async fn an_answer_is_read_as_it_comes_and_a_severed_one_is_no_end() {
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
