//! Stations with few places, and clients that want them all.
//!
//! Timeouts that could end a silent connection are an hour, so that only the room's eviction can.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::tls::Tls;

const PLACES: usize = 8;
const HOUR: Duration = Duration::from_secs(3600);
/// For waits that must end; no test measures it.
const PATIENCE: Duration = Duration::from_secs(60);

fn patient() -> ConnectionLimits {
    ConnectionLimits {
        first_byte: HOUR,
        head: HOUR,
        idle: HOUR,
        spare: Duration::ZERO,
        ..ConnectionLimits::operators(Duration::ZERO)
    }
}

/// A station that answers `/`, holds `/held` until the test releases it, and streams `/endless`.
struct Scene {
    address: SocketAddr,
    room: Arc<Room>,
    release: Arc<Notify>,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

async fn answer(request: Request<Lent<Incoming>>, release: Arc<Notify>) -> Result<Answer, Infallible> {
    let body = match request.uri().path() {
        "/endless" => {
            let part = || async { Ok(Frame::data(Bytes::from_static(&[b'x'; 1024]))) };
            StreamBody::new(futures::stream::repeat_with(part).then(|part| part)).boxed_unsync()
        }
        path => {
            if path == "/held" {
                release.notified().await;
            }
            Full::new(Bytes::from_static(b"here")).boxed_unsync()
        }
    };
    Ok(Response::new(body))
}

impl Scene {
    async fn new(limits: ConnectionLimits) -> Self {
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address().unwrap();
        let (room, release, stop) =
            (Room::new(PLACES, "the test"), Arc::new(Notify::new()), CancellationToken::new());
        let station = Station::new(listener, &Tls::default(), limits, room.clone());
        let held = release.clone();
        let service = tower::service_fn(move |request| answer(request, held.clone()));
        let served = tokio::spawn(station.serve(service, stop.clone().cancelled_owned()));
        Self { address, room, release, stop, served }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn crowd(&self, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
        let mut crowd = Vec::new();
        for _ in 0..count {
            let mut stream = self.connect().await;
            stream.write_all(bytes).await.unwrap();
            crowd.push(stream);
        }
        crowd
    }

    async fn settle(&self, taken: usize) {
        let settled = async {
            while self.room.taken() != taken {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let settled = tokio::time::timeout(PATIENCE, settled).await;
        assert!(settled.is_ok(), "{} places are taken, not {taken}", self.room.taken());
    }
}

async fn send<S: AsyncWriteExt + Unpin>(stream: &mut S, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
}

/// Whether a whole response arrives; false if the connection ends first.
async fn is_answered<S: AsyncReadExt + Unpin>(stream: &mut S) -> bool {
    let mut answer = Vec::new();
    let read = async {
        while !answer.ends_with(b"here") {
            match stream.read_buf(&mut answer).await {
                Ok(1..) => {}
                _ => return false,
            }
        }
        true
    };
    tokio::time::timeout(PATIENCE, read).await.expect("neither an answer nor an end")
}

async fn assert_answers(scene: &Scene, what: &str) {
    let mut stream = scene.connect().await;
    send(&mut stream, "/").await;
    assert!(is_answered(&mut stream).await, "{what}: an honest client is cut off");
}

#[tokio::test]
async fn longest_idle_connection_is_evicted_from_a_full_room() {
    let scene = Scene::new(patient()).await;
    let mut idle = scene.crowd(PLACES, b"").await;
    for stream in &mut idle {
        send(stream, "/").await;
        assert!(is_answered(stream).await);
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert_answers(&scene, "with idle clients").await;
    let mut open = 0;
    for stream in &mut idle {
        send(stream, "/").await;
        open += usize::from(is_answered(stream).await);
    }
    assert_eq!(open, PLACES - 1, "one connection made room");
    assert!(!is_answered(&mut idle[0]).await, "the one that was idle for longest");
}

#[tokio::test]
async fn busy_connection_makes_no_room() {
    let scene = Scene::new(patient()).await;
    let mut busy = scene.crowd(PLACES, b"").await;
    for stream in &mut busy {
        send(stream, "/held").await;
    }
    scene.settle(PLACES).await;
    // A request on its way is not in progress yet: the server must read all of them first.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut late = scene.connect().await;
    send(&mut late, "/").await;
    tokio::time::sleep(Duration::from_millis(350)).await;
    scene.release.notify_waiters();
    for stream in &mut busy {
        assert!(is_answered(stream).await, "a request in progress was cut");
    }
    assert!(is_answered(&mut late).await, "idle connections make room");
}

#[tokio::test]
async fn stopped_station_cuts_what_takes_longer_than_its_drain() {
    let limits = ConnectionLimits { drain: Duration::from_millis(200), ..patient() };
    let scene = Scene::new(limits).await;
    let mut held = scene.connect().await;
    send(&mut held, "/held").await;
    let mut idle = scene.connect().await;
    scene.settle(2).await;
    scene.stop.cancel();
    tokio::time::timeout(PATIENCE, scene.served).await.expect("the station serves on").unwrap();
    for stream in [&mut held, &mut idle] {
        let end = tokio::time::timeout(PATIENCE, stream.read(&mut [0])).await;
        assert!(matches!(end.expect("a connection stays open"), Ok(0) | Err(_)));
    }
    TcpStream::connect(scene.address).await.unwrap_err();
}

/// An HTTP/2 client that sends a request and leaves no window for the response.
async fn ask_without_window(scene: &Scene) -> JoinHandle<()> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let builder = builder.initial_stream_window_size(0);
    let (mut sender, connection) = builder.handshake(TokioIo::new(scene.connect().await)).await.unwrap();
    let request = Request::get("http://a/").body(Full::<Bytes>::default()).unwrap();
    tokio::spawn(async move {
        let answer = async { (sender.send_request(request).await, std::future::pending::<()>().await) };
        tokio::select! {
            _ = connection => {}
            _ = answer => {}
        }
    })
}

#[tokio::test]
async fn clients_that_take_no_answer_keep_no_client_out() {
    let scene = Scene::new(ConnectionLimits { answer: HOUR, ..patient() }).await;
    let mut crowd = Vec::new();
    for _ in 0..3 * PLACES {
        crowd.push(ask_without_window(&scene).await);
        if crowd.len() == PLACES {
            scene.settle(PLACES).await;
        }
    }
    for _ in 0..3 {
        assert_answers(&scene, "with clients that do not read").await;
    }
}
