//! An HTTP/1.1 request whose response is read as it arrives, one connection per request.
//!
//! Used for servers that are not instances, such as the Kubernetes API, and for responses without a fixed end.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
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

/// The lines of a response, each of limited length. Empty lines are skipped.
#[derive(Debug)]
pub struct Lines {
    hearing: Hearing,
    longest: usize,
    rest: BytesMut,
    /// Length of the prefix that contains no end of a line.
    searched: usize,
}

impl Inquiry<'_> {
    /// Sends the request, and waits for the head of the response. Must be called within a tokio runtime.
    pub async fn ask(&self, pipe: Box<dyn Pipe>) -> io::Result<Hearing> {
        self.send(Method::GET, None, pipe).await
    }

    /// The same with another method, and a body of JSON.
    pub async fn send(
        &self,
        method: Method,
        body: Option<Bytes>,
        pipe: Box<dyn Pipe>,
    ) -> io::Result<Hearing> {
        let mut request = Request::builder().method(method).uri(self.path);
        request = request.header(header::HOST, self.authority).header(header::ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(token) = self.token {
            let value = token.header().map_err(|wrong| io::Error::new(io::ErrorKind::InvalidInput, wrong))?;
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Full::new(body.unwrap_or_default())).map_err(io::Error::other)?;
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

impl Lines {
    /// The remaining lines of a response.
    pub fn of(hearing: Hearing, longest: usize) -> Self {
        Self { hearing, longest, rest: BytesMut::new(), searched: 0 }
    }

    /// The next line; `None` after the regular end. A line that is too long is `InvalidData`. Cancel safe: may be
    /// dropped and called again.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(end) = self.rest[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(self.searched + end).freeze();
                self.rest.advance(1);
                self.searched = 0;
                if line.is_empty() {
                    continue;
                }
                return Ok(Some(line));
            }
            self.searched = self.rest.len();
            if self.rest.len() > self.longest {
                let reason = format!("a line has more than {} bytes", self.longest);
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            match self.hearing.chunk().await? {
                Some(chunk) => self.rest.extend_from_slice(&chunk),
                None if self.rest.is_empty() => return Ok(None),
                None => {
                    let reason = "the response ended within a line";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn response_is_read_as_it_arrives_and_a_cut_is_an_error() {
        const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n";
        let token = Token::new("secret");
        for (rest, expected) in [("1\r\nc\r\n0\r\n\r\n", Some("abc")), ("", None)] {
            let (ours, mut theirs) = tokio::io::duplex(1024);
            let server = tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(theirs.read_u8().await.unwrap());
                }
                theirs.write_all(format!("{HEAD}{rest}").as_bytes()).await.unwrap();
                String::from_utf8(request).unwrap().to_lowercase()
            });
            let inquiry = Inquiry { authority: "api:443", path: "/apis?watch=1", token: Some(&token) };
            let mut hearing = inquiry.ask(Box::new(ours)).await.unwrap();
            assert_eq!(hearing.status(), 200);
            let mut body = Vec::new();
            let end = loop {
                match hearing.chunk().await {
                    Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                    end => break end,
                }
            };
            assert_eq!(end.ok().map(|_| body), expected.map(|body| body.as_bytes().to_vec()));
            let request = server.await.unwrap();
            assert!(request.starts_with("get /apis?watch=1 http/1.1\r\n"), "{request}");
            for header in
                ["host: api:443\r\n", "authorization: bearer secret\r\n", "accept: application/json"]
            {
                assert!(request.contains(header), "{header} is missing in {request}");
            }
        }
    }
}
