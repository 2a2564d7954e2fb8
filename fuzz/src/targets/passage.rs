//! A frontend between its clients and one upstream server, over sockets and with a clock that runs only while all tasks wait.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parm_frontend::discovery::Wire;
use parm_frontend::{Config, Frontend, Timers, upstreams};
use parm_transport::client;
use parm_transport::server::{self, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Longest that a request may take: its deadline, a pause of its answer, and the attempts in between.
const LONGEST: Duration = Duration::from_secs(600);

/// Answers of the server that a frontend asks whether it is there.
const WELL: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// What the server got and sends.
#[derive(Default)]
struct Script {
    heard: Mutex<Vec<Vec<u8>>>,
    answer: Mutex<Option<Vec<u8>>>,
}

pub(super) struct Passage {
    runtime: Runtime,
    socket: PathBuf,
    script: Arc<Script>,
}

impl Passage {
    pub(super) fn start() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = |name: &str| {
            std::env::temp_dir().join(format!("parm-fuzz-{}-{number}-{name}", std::process::id()))
        };
        let [socket, upstream] = ["parm", "server"].map(path);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("a runtime of one thread can be made");
        let script: Arc<Script> = Arc::default();
        runtime.block_on(async {
            tokio::spawn(ticks());
            let listener = UnixListener::bind(&upstream).expect("a new socket");
            tokio::spawn(listens(listener, script.clone()));
            let mut config = Config::default();
            let urls = vec![format!("unix:{}", upstream.display())];
            config.upstreams = upstreams::Config { urls, ..upstreams::Config::default() };
            let known = config.upstreams.client().expect("the routes are valid");
            let wire = client::Config { upstream: known, ..client::Config::default() };
            let frontend = Frontend::start(config, Arc::new(Wire::new(wire)), Timers::Runtime);
            let frontend = frontend.expect("the defaults can be used");
            let any = || "127.0.0.1:0".parse().expect("an address");
            let (http, grpc, metrics, unix) = (any(), any(), any(), Some(socket.clone()));
            let config = server::Config { http, grpc, metrics, unix, ..server::Config::default() };
            let server = Server::bind(config, Arc::new(frontend.clone())).await.expect("addresses are free");
            tokio::spawn(server.run(CancellationToken::new()));
            while !parm_protocol::InferenceService::is_ready(&frontend) {
                sleep(Duration::from_millis(1)).await;
            }
            // The server is known by now.
            sleep(Duration::from_secs(2)).await;
        });
        script.heard.lock().expect("it did not panic").clear();
        Self { runtime, socket, script }
    }

    /// Sends bytes and closes the connection for further ones. Returns what came back, and the requests that the server got. The
    /// server answers with `answer`, or well.
    pub(super) fn send(&self, bytes: &[u8], answer: Option<&[u8]>) -> (Vec<u8>, Vec<Vec<u8>>) {
        *self.script.answer.lock().expect("it did not panic") = answer.map(<[u8]>::to_vec);
        let came = self.runtime.block_on(async {
            let stream = UnixStream::connect(&self.socket).await.expect("the frontend is there");
            let (mut from, mut to) = stream.into_split();
            let bytes = bytes.to_vec();
            let sends = tokio::spawn(async move {
                // The frontend may have closed the connection.
                let _ = to.write_all(&bytes).await;
                let _ = to.shutdown().await;
                to
            });
            let mut came = Vec::new();
            let read = timeout(LONGEST, from.read_to_end(&mut came)).await;
            assert!(read.is_ok(), "a connection did not end within {LONGEST:?}");
            drop(sends.await);
            // What remains of the request at the server.
            sleep(Duration::from_millis(5)).await;
            came
        });
        (came, std::mem::take(&mut self.script.heard.lock().expect("it did not panic")))
    }
}

/// Paused time jumps to the next timer whenever all tasks wait, also for sockets: this bounds the jump.
async fn ticks() {
    loop {
        sleep(Duration::from_millis(1)).await;
    }
}

async fn listens(listener: UnixListener, script: Arc<Script>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answers(stream, script.clone()));
    }
}

/// Answers the requests of a connection.
async fn answers(mut stream: UnixStream, script: Arc<Script>) {
    let mut bytes = Vec::new();
    loop {
        while let Some(length) = whole(&bytes) {
            let request: Vec<u8> = bytes.drain(..length).collect();
            let is_probe =
                request.starts_with(b"GET /health HTTP/1.1\r\n") && !has(&request, "x-forwarded-host");
            if !is_probe {
                script.heard.lock().expect("it did not panic").push(request);
            }
            let planned = script.answer.lock().expect("it did not panic").clone().filter(|_| !is_probe);
            let is_last = planned.is_some();
            if stream.write_all(&planned.unwrap_or_else(|| WELL.to_vec())).await.is_err() || is_last {
                return;
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            // Half a request is one that the frontend gave up, or one that ends elsewhere than its client thinks.
            return;
        }
    }
}

/// The length of the first request, if it is whole.
fn whole(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let length =
        lines(&bytes[..head], "content-length").last().map_or(0, |text| text.parse().expect("a length"));
    (bytes.len() >= head + length).then_some(head + length)
}

/// The values of a header.
pub(super) fn lines<'a>(request: &'a [u8], name: &str) -> Vec<std::borrow::Cow<'a, str>> {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(request.len());
    let named = |line: &'a [u8]| {
        let (key, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        key.eq_ignore_ascii_case(name.as_bytes()).then(|| String::from_utf8_lossy(value[1..].trim_ascii()))
    };
    request[..end].split(|byte| *byte == b'\n').filter_map(named).collect()
}

fn has(request: &[u8], name: &str) -> bool {
    !lines(request, name).is_empty()
}
