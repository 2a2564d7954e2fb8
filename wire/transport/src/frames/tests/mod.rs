//! Both ends of a connection, over a socket pair: the helpers that all tests of frames share.

mod goodbye;
mod grants;
mod limits;
mod traffic;

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parm_protocol::client::CallContext;
use parm_protocol::{Code, Context, Error, InferRequest, InferResponse, InferenceService, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frame::{Frame, Header, Kind, LENGTH};
use super::*;
use crate::Budget;
use crate::keys::Caller;
use crate::scripted::{Scripted, echo};
use crate::testing::request;

impl From<Config> for Limits {
    /// A connection with its own byte budget, for any caller.
    fn from(config: Config) -> Self {
        let whole = config.max_body_bytes.get() as usize * config.max_in_flight.get() as usize;
        Self { config, budget: Budget::new(whole), caller: Caller::default(), age: None, grants: false }
    }
}

fn client(near: impl Into<Socket>, config: &Config) -> Connection {
    Connection::new("pair".into(), near.into(), b"", Negotiated::of(config), config, None)
}

fn echoing() -> impl InferenceService {
    Scripted(|request, _| async move { Ok(echo(request)) })
}

/// Takes a second per character of a request's id.
async fn answer(request: InferRequest) -> Result<InferResponse, Error> {
    tokio::time::sleep(Duration::from_secs(request.id.len() as u64)).await;
    Ok(echo(request))
}

struct Server {
    task: JoinHandle<std::io::Result<()>>,
    drain: CancellationToken,
}

impl Server {
    fn new(far: Socket, service: impl InferenceService, limits: impl Into<Limits>) -> Self {
        let (drain, limits) = (CancellationToken::new(), limits.into());
        let ended = drain.clone();
        let task = tokio::spawn(async move { serve(far, b"", Arc::new(service), &limits, ended).await });
        Self { task, drain }
    }
}

/// A server, and the socket of a client that the test plays.
fn served(service: impl InferenceService, limits: impl Into<Limits>) -> (UnixStream, Server) {
    let (near, far) = UnixStream::pair().unwrap();
    (near, Server::new(far.into(), service, limits))
}

fn start(service: impl InferenceService, config: &Config) -> (Connection, Server) {
    let (near, server) = served(service, config.clone());
    (client(near, config), server)
}

fn asked(number: u64, request: &InferRequest) -> Vec<u8> {
    codec::encode_request(number, request, codec::Envelope::default(), 64 << 20).unwrap().chunks.concat()
}

fn bare(kind: Kind) -> Bytes {
    Frame::bare(kind, 0).chunks[0].clone()
}

async fn next_frame(near: &mut UnixStream) -> std::io::Result<(Header, Vec<u8>)> {
    let mut bytes = [0; LENGTH];
    near.read_exact(&mut bytes).await?;
    let header = Header::from_bytes(&bytes).unwrap();
    let mut body = vec![0; header.body as usize];
    near.read_exact(&mut body).await?;
    Ok((header, body))
}

const ANY_TIME: &CallContext = &CallContext { deadline: None, traceparent: None, share: None, once: false };

/// Counts itself while it exists.
struct Alive(Arc<AtomicUsize>, Arc<Notify>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>, changed: &Arc<Notify>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        changed.notify_one();
        Self(Arc::clone(count), Arc::clone(changed))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
        self.1.notify_one();
    }
}

/// A service whose requests never end, and the number of them in progress.
fn endless() -> (impl InferenceService, Arc<AtomicUsize>, Arc<Notify>) {
    let (count, changed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (inner_count, inner_changed) = (Arc::clone(&count), Arc::clone(&changed));
    let service = Scripted(move |_, _| {
        let alive = Alive::new(&inner_count, &inner_changed);
        async move {
            let _alive = alive;
            std::future::pending().await
        }
    });
    (service, count, changed)
}

async fn until(count: &AtomicUsize, changed: &Notify, wanted: usize) {
    while count.load(Ordering::SeqCst) != wanted {
        changed.notified().await;
    }
}
