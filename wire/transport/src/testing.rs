//! Helpers for the tests of several modules.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parm_protocol::client::Client;
use parm_protocol::{DataType, InferRequest, InferenceService, ModelRef, NamedTensor, Tensor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::client::{self, Prefer, Token};
use crate::keys::Keys;
use crate::server::{Config, Server};

pub(crate) fn request(id: impl Into<String>, bytes: usize) -> InferRequest {
    let data = Bytes::from_iter((0..bytes).map(|at| at as u8));
    let tensor = Tensor::new(DataType::Uint8, [bytes].as_slice(), data).unwrap();
    let inputs = vec![NamedTensor::new("x", tensor)];
    InferRequest { model: ModelRef::latest("m"), id: id.into(), inputs, ..InferRequest::default() }
}

pub(crate) fn local() -> Config {
    let any = "127.0.0.1:0".parse().unwrap();
    Config { http: any, grpc: any, metrics: any, ..Config::default() }
}

/// Clients with a token of a server with these keys, one for each transport.
pub(crate) async fn clients<S: InferenceService>(
    keys: Keys,
    service: Arc<S>,
    token: &str,
) -> Vec<(&'static str, Arc<dyn Client>)> {
    let server = Server::bind_for(keys, local(), service).await.unwrap();
    let at = server.addresses();
    tokio::spawn(server.run(CancellationToken::new()));
    let client = |(name, endpoint, transport): (&'static str, String, Prefer)| {
        let config = client::Config { token: Some(Token::new(token)), transport, ..Default::default() };
        (name, client::connect(&endpoint.parse().unwrap(), &config).unwrap())
    };
    let transports = [
        ("http", format!("http://{}", at.http), Prefer::Http),
        ("auto", format!("http://{}", at.http), Prefer::Auto),
        ("frames", format!("frames://{}", at.http), Prefer::Auto),
        ("grpc", format!("grpc://{}", at.grpc), Prefer::Auto),
    ];
    transports.map(client).into()
}

pub(crate) async fn http2<B>(stream: UnixStream) -> SendRequest<B>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let connected = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, driver) = connected.await.unwrap();
    tokio::spawn(driver);
    sender
}

/// Reads a request of HTTP/1.1 with its body; `None` if the connection ended instead.
pub(crate) async fn hear(stream: &mut TcpStream) -> Option<String> {
    let mut heard = Vec::new();
    loop {
        if let Some(end) = heard.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&heard).into_owned();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            if heard.len() >= end + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap()) {
                return Some(text);
            }
        }
        stream.read_buf(&mut heard).await.ok().filter(|read| *read > 0)?;
    }
}

pub(crate) fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// The end of a server: its listener, its open connections, and the requests that it heard.
pub(crate) struct Served(pub(crate) TcpListener, pub(crate) Vec<TcpStream>, pub(crate) Vec<String>);

/// Serves connections one after the other, each with these answers. A connection ends after a request with an empty answer.
pub(crate) async fn serve_at(listener: TcpListener, connections: Vec<Vec<String>>) -> Served {
    let (mut open, mut heard) = (Vec::new(), Vec::new());
    for answers in connections {
        let (mut stream, _) = listener.accept().await.unwrap();
        let closes = answers.last().is_some_and(String::is_empty);
        for answer in answers {
            heard.push(hear(&mut stream).await.unwrap());
            // May fail if the client disconnects before it has read all of this.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
        open.extend((!closes).then_some(stream));
    }
    Served(listener, open, heard)
}
