//! Both ends of a connection, over a socket pair: the helpers that all tests of frames share.

mod cancel;
mod ending;
mod goodbye;
mod grants;
mod keys;
mod limits;
mod slow;
mod traffic;

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parm_protocol::client::CallContext;
use parm_protocol::{
    Code, Context, DataType, Error, InferRequest, InferenceService, ModelRef, NamedTensor, Parameters,
    Tensor, Transport,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frame::Frame;
use super::*;
use crate::Budget;
use crate::scripted::{Scripted, echo};

fn request(id: impl Into<String>, bytes: usize) -> InferRequest {
    let data = Bytes::from(vec![1u8; bytes]);
    let tensor = Tensor::new(DataType::Uint8, [bytes].as_slice(), data).unwrap();
    InferRequest {
        model: ModelRef::latest("m"),
        id: id.into(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("x", tensor)],
        outputs: vec![],
    }
}

/// A client's end of a negotiated connection.
fn client(near: UnixStream, config: &Config) -> Connection {
    Connection::new("pair".into(), near.into(), b"", Negotiated::of(config), config)
}

/// Serves the far end of a connection until the client closes it.
async fn serve_end<S: InferenceService>(
    far: UnixStream,
    service: S,
    limits: impl Into<Limits>,
) -> std::io::Result<()> {
    serve(far.into(), b"", Arc::new(service), &limits.into(), CancellationToken::new()).await
}

/// A service that answers with its inputs.
fn echoing() -> impl InferenceService {
    Scripted(|request, _| async move { Ok(echo(request)) })
}

struct Server {
    task: JoinHandle<std::io::Result<()>>,
    drain: CancellationToken,
}

fn start<S: InferenceService>(service: S, config: &Config) -> (Connection, Server) {
    let (near, far) = UnixStream::pair().unwrap();
    let (drain, config) = (CancellationToken::new(), config.clone());
    let connection = client(near, &config);
    let token = drain.clone();
    let task =
        tokio::spawn(async move { serve(far.into(), b"", Arc::new(service), &config.into(), token).await });
    (connection, Server { task, drain })
}

/// Reads a whole frame from a peer that the test plays.
async fn next_frame(near: &mut UnixStream) -> std::io::Result<(header::Header, Vec<u8>)> {
    let mut bytes = [0; header::LENGTH];
    near.read_exact(&mut bytes).await?;
    let header = header::Header::from_bytes(&bytes).unwrap();
    let mut body = vec![0; header.body as usize];
    near.read_exact(&mut body).await?;
    Ok((header, body))
}

/// No deadline, no trace.
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
