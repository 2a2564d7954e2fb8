//! Memory cost of hostile bodies: the peak is a few times their size, for any content and transport.
//!
//! Measured with a counting allocator against the real server, in its own program.

mod bodies;
mod counting;
#[allow(dead_code)]
#[path = "../../src/scripted.rs"]
mod scripted;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parm_protocol::InferResponse;
use parm_transport::server::{Config, Server};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use bodies::{Body, LARGEST};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// The limit in the documentation.
const MOST: f64 = 4.0;

fn nothing() -> InferResponse {
    InferResponse { model_name: "m".into(), model_version: "1".into(), ..Default::default() }
}

struct Scene {
    runtime: Runtime,
    http: SocketAddr,
}

impl Scene {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let mut config = Config { max_body_bytes: NonZeroUsize::new(LARGEST).unwrap(), ..Config::default() };
        for address in [&mut config.http, &mut config.grpc, &mut config.metrics] {
            *address = "127.0.0.1:0".parse().unwrap();
        }
        let server = runtime
            .block_on(Server::bind(
                config,
                Arc::new(scripted::Scripted(|_, _| std::future::ready(Ok(nothing())))),
            ))
            .unwrap();
        let http = server.addresses().http;
        runtime.spawn(server.run(CancellationToken::new()));
        Self { runtime, http }
    }

    /// Sends bytes and reads until the server closes; returns the first bytes of the response.
    fn raw(&self, head: &[u8], body: &[u8]) -> [u8; 16] {
        let mut stream = TcpStream::connect(self.http).unwrap();
        stream.write_all(head).unwrap();
        // A rejection may arrive before all is sent.
        let _ = stream.write_all(body);
        let (mut first, mut rest) = ([0; 16], [0; 4096]);
        stream.read_exact(&mut first).unwrap();
        while stream.read(&mut rest).is_ok_and(|read| read > 0) {}
        first
    }

    fn post(&self, head: &str, body: &[u8]) {
        let head = format!("POST /v2/models/m/infer HTTP/1.1\r\nhost: m\r\nconnection: close\r\n{head}\r\n");
        let said = self.raw(head.as_bytes(), body);
        assert!(said.starts_with(b"HTTP/1.1 "), "{said:?}");
    }

    fn grpc(&self, body: &Bytes) {
        let body = Full::new(body.clone());
        self.runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(self.http).await.unwrap();
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await
                    .unwrap();
            tokio::spawn(connection);
            let uri = "http://m/inference.GRPCInferenceService/ModelInfer";
            let request = http::Request::post(uri)
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(body)
                .unwrap();
            assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
        });
    }

    fn frames(&self, body: &[u8]) {
        let mut stream = TcpStream::connect(self.http).unwrap();
        let ask =
            "GET /v2/frames HTTP/1.1\r\nhost: m\r\nconnection: upgrade\r\nupgrade: parm-frames/2\r\n\r\n";
        stream.write_all(ask.as_bytes()).unwrap();
        let (mut agreed, mut byte) = (0u32, [0]);
        while agreed != u32::from_be_bytes(*b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            agreed = agreed << 8 | u32::from(byte[0]);
        }
        stream.write_all(body).unwrap();
        let mut answer = [0; 16];
        stream.read_exact(&mut answer).unwrap();
        assert!([2, 3].contains(&answer[4]), "an answer or a failure, not {answer:?}");
    }

    fn send(&self, body: &Body) {
        match body {
            Body::Json(json) => self.post(&format!("content-length: {}\r\n", json.len()), json),
            Body::Chunked(json) => self.post("transfer-encoding: chunked\r\n", json),
            Body::Binary(json, body) => {
                let lengths =
                    format!("content-length: {}\r\ninference-header-content-length: {json}\r\n", body.len());
                self.post(&lengths, body);
            }
            Body::Grpc(message) => self.grpc(message),
            Body::Frame(frame) => self.frames(frame),
        }
    }
}

#[test]
fn body_costs_at_most_four_times_its_size() {
    let scene = Scene::new();
    let small = [Body::Json(b"{}".to_vec()), bodies::frame(b"\0"), bodies::grpc(b"")];
    small.iter().for_each(|body| scene.send(body));
    let mut over = Vec::new();
    for (name, make) in bodies::ALL {
        let body = make();
        let size = body.len();
        assert!(size > LARGEST * 9 / 10, "{name} has only {size} bytes");
        let peak = counting::peak(|| scene.send(&body));
        let times = peak as f64 / size as f64;
        eprintln!("{times:5.2} times  {name}");
        if times > MOST {
            over.push(format!("{name}: {times:.2}"));
        }
    }
    assert!(over.is_empty(), "more than {MOST} times the size of the body: {over:#?}");
}
