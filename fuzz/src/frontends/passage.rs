//! A frontend between its clients and one upstream server, over sockets and with a clock that runs only while all tasks wait.

use std::borrow::Cow;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
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
const LONGEST: Duration = Duration::from_secs(10);

/// Silence after which nothing more happens by itself: a request takes a few milliseconds of this clock.
const QUIET: Duration = Duration::from_millis(50);

/// Most tasks that the frontend may start for itself later on.
const LATER: usize = 32;

/// Most connections that are kept to the server.
const MOST_OPEN: usize = 1024;

thread_local!(static PANICS: Cell<usize> = const { Cell::new(0) });

/// Answers of the server that a frontend asks whether it is there.
const WELL: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// The requests that the server got, and its answer.
#[derive(Default)]
struct Script {
    heard: Mutex<Vec<Vec<u8>>>,
    answer: Mutex<Option<Vec<u8>>>,
    /// Open connections, each with a task.
    open: AtomicUsize,
}

pub(super) struct Passage {
    runtime: Runtime,
    socket: PathBuf,
    script: Arc<Script>,
    /// Most tasks without a request.
    tasks: usize,
}

impl Passage {
    pub(super) fn start() -> Self {
        count_panics();
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
        let tasks = runtime.metrics().num_alive_tasks() + LATER;
        Self { runtime, socket, script, tasks }
    }

    /// Sends bytes and reads to the end of the connection. Returns what came back, and the requests that the server got.
    ///
    /// The server answers with `answer`, or well. Without an answer the client closes its side once nothing happens; sooner
    /// it would have left, and need no answer.
    pub(super) fn send(&self, bytes: &[u8], answer: Option<&[u8]>) -> (Vec<u8>, Vec<Vec<u8>>) {
        *self.script.answer.lock().expect("it did not panic") = answer.map(<[u8]>::to_vec);
        let came = self.runtime.block_on(async {
            let stream = UnixStream::connect(&self.socket).await.expect("the frontend is there");
            let (mut from, mut to) = stream.into_split();
            let bytes = bytes.to_vec();
            let sends = tokio::spawn(async move {
                // The frontend may have closed the connection.
                let _ = to.write_all(&bytes).await;
                to
            });
            let mut came = Vec::new();
            let read = timeout(LONGEST, async {
                while let Ok(read) = timeout(QUIET, from.read_buf(&mut came)).await {
                    if is_end(read) {
                        return;
                    }
                }
                if answer.is_none() {
                    let _ = sends.await.expect("it does not panic").shutdown().await;
                }
                while !is_end(from.read_buf(&mut came).await) {}
            });
            assert!(read.await.is_ok(), "a connection did not end within {LONGEST:?}");
            drop(from);
            for _ in 0..LONGEST.as_millis() {
                if self.is_idle() {
                    break;
                }
                sleep(Duration::from_millis(1)).await;
            }
            came
        });
        assert_eq!(PANICS.get(), 0, "a task panicked");
        assert!(self.is_idle(), "{} tasks are left", self.runtime.metrics().num_alive_tasks());
        (came, std::mem::take(&mut self.script.heard.lock().expect("it did not panic")))
    }

    /// Whether no task is left of earlier requests.
    fn is_idle(&self) -> bool {
        let open = self.script.open.load(Ordering::Relaxed);
        open <= MOST_OPEN && self.runtime.metrics().num_alive_tasks() <= self.tasks + open
    }
}

/// Whether a read ended the connection, which a frontend may do in the middle of a request.
fn is_end(read: std::io::Result<usize>) -> bool {
    read.unwrap_or(0) == 0
}

/// Counts the panics of this thread, because those of its tasks end nothing else.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            before(panic);
        }));
    });
}

/// Paused time jumps to the next timer whenever all tasks wait, also for sockets: this bounds the jump.
async fn ticks() {
    loop {
        sleep(Duration::from_millis(1)).await;
    }
}

async fn listens(listener: UnixListener, script: Arc<Script>) {
    while let Ok((stream, _)) = listener.accept().await {
        script.open.fetch_add(1, Ordering::Relaxed);
        let script = script.clone();
        tokio::spawn(async move {
            answers(stream, &script).await;
            script.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Answers the requests of a connection.
async fn answers(mut stream: UnixStream, script: &Script) {
    let mut bytes = Vec::new();
    let heard = |request| script.heard.lock().expect("it did not panic").push(request);
    loop {
        while let Some(length) = whole(&bytes) {
            let request: Vec<u8> = bytes.drain(..length).collect();
            let is_probe =
                request.starts_with(b"GET /health HTTP/1.1\r\n") && !has(&request, "x-forwarded-host");
            if !is_probe {
                heard(request);
            }
            let planned = script.answer.lock().expect("it did not panic").clone().filter(|_| !is_probe);
            let is_last = planned.is_some();
            if stream.write_all(&planned.unwrap_or_else(|| WELL.to_vec())).await.is_err() || is_last {
                return;
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            if !bytes.is_empty() {
                // It ends elsewhere than its head says.
                heard(bytes);
            }
            return;
        }
    }
}

/// The length of the first request, if it is whole. One of no clear length is never whole.
fn whole(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let length = values(&bytes[..head], "content-length").last().map_or(Some(0), |text| text.parse().ok())?;
    (bytes.len() >= head + length).then_some(head + length)
}

/// The values of a header.
pub(super) fn values<'a>(head: &'a [u8], name: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
    let named = |line: &'a [u8]| {
        let (key, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        key.eq_ignore_ascii_case(name.as_bytes()).then(|| String::from_utf8_lossy(value[1..].trim_ascii()))
    };
    head.split(|byte| *byte == b'\n').filter_map(named)
}

fn has(request: &[u8], name: &str) -> bool {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(request.len());
    values(&request[..end], name).next().is_some()
}
