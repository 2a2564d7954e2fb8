//! The emulated chat server over a real socket.

mod faults;
mod routes;
mod streams;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use parm_backend::{Chat, Config, Metrics, Worker, chat};
use parm_transport::keys::{Digest, Entry, Keys, Role};
use parm_transport::server::{self, Address, Server};
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The key that requests have.
const KEY: &str = "hush";

/// A worker with an emulated chat server that takes no time, and with fault injection.
struct Scene {
    worker: Worker,
    registry: Registry,
    address: SocketAddr,
    _stop: DropGuard,
}

/// An answer, read to the end of its connection.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

fn settings() -> chat::Config {
    let model = Some("tiny".into());
    chat::Config { model, iteration_ms: 0.0, stream_ms: 0.0, prompt_token_ms: 0.0, ..chat::Config::default() }
}

impl Scene {
    async fn new() -> Self {
        Self::with(settings()).await
    }

    async fn with(chat: chat::Config) -> Self {
        Self::guarded(chat, Keys::none()).await
    }

    async fn guarded(chat: chat::Config, keys: Keys) -> Self {
        let registry = Registry::new();
        let config = Config { chat, faults: true, ..Config::default() };
        let worker = Worker::start(config, Metrics::worker(&registry).unwrap()).unwrap();
        worker.load().unwrap();
        let chat: Chat = worker.chat(&registry).unwrap().unwrap();
        let any = Address::local(0);
        let max_body_bytes = NonZeroUsize::new(100_000).unwrap();
        let config = server::Config {
            http: any,
            grpc: any,
            metrics: any,
            max_body_bytes,
            ..server::Config::default()
        };
        let server = Server::bind_for(keys, config, Arc::new(worker.clone())).await.unwrap();
        let server = server.with_guest(Arc::new(chat));
        let address = server.addresses().http;
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone()));
        Self { worker, registry, address, _stop: stop.drop_guard() }
    }

    /// Connects and sends a request.
    async fn send(&self, method: &str, path: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        stream
    }

    async fn ask(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        let mut stream = self.send(method, path, body).await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        Answer::read(&bytes)
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, body.to_string().as_bytes()).await
    }

    /// A metric's value.
    fn count(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let metric = &family.get_metric()[0];
        metric.get_gauge().get_value() + metric.get_counter().get_value()
    }

    /// Waits until a metric has this value.
    async fn until(&self, name: &str, value: f64) {
        while self.count(name) != value {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

impl Answer {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, mut rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut body = String::new();
        if head.to_lowercase().contains("transfer-encoding: chunked") {
            while let Some((size, chunk)) = rest.split_once("\r\n") {
                let size = usize::from_str_radix(size, 16).unwrap();
                body.push_str(&chunk[..size]);
                rest = &chunk[size..][2..];
            }
        } else {
            body.push_str(rest);
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_lowercase(), body }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The documents of a stream, which must end with `[DONE]`.
    fn events(&self) -> Vec<Value> {
        let mut events: Vec<&str> = self.body.split("\n\n").collect();
        assert_eq!(events.pop(), Some(""), "{}", self.body);
        assert_eq!(events.pop(), Some("data: [DONE]"), "{}", self.body);
        events
            .into_iter()
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
            .collect()
    }
}

fn chat_about(text: &str, tokens: u64) -> Value {
    let messages = json!([{ "role": "user", "content": text }]);
    json!({ "model": "tiny", "messages": messages, "max_tokens": tokens })
}

fn with(mut body: Value, name: &str, value: impl Into<Value>) -> Value {
    body[name] = value.into();
    body
}
