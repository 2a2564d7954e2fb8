//! Both ends of a connection, over a socket pair.

mod cancel;
mod goodbye;
mod keys;
mod slow;
mod tokens;

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

struct Server {
    task: JoinHandle<std::io::Result<()>>,
    drain: CancellationToken,
}

fn start<S: InferenceService>(service: S, config: &Config) -> (Connection, Server) {
    let (near, far) = UnixStream::pair().unwrap();
    let (drain, config) = (CancellationToken::new(), config.clone());
    let connection = Connection::new("pair".into(), near.into(), b"", Negotiated::of(&config), &config);
    let token = drain.clone();
    let task =
        tokio::spawn(async move { serve(far.into(), b"", Arc::new(service), &config.into(), token).await });
    (connection, Server { task, drain })
}

/// Reads a whole frame from a peer that is played by hand.
async fn next_frame(near: &mut UnixStream) -> std::io::Result<(header::Header, Vec<u8>)> {
    let mut bytes = [0; header::LENGTH];
    near.read_exact(&mut bytes).await?;
    let header = header::Header::from_bytes(&bytes).unwrap();
    let mut body = vec![0; header.body as usize];
    near.read_exact(&mut body).await?;
    Ok((header, body))
}

/// No deadline, no trace.
const ANY_TIME: &CallContext = &CallContext { deadline: None, traceparent: None, token: None, share: None };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_requests_on_one_connection_keep_their_answers_apart() {
    let config = Config { max_in_flight: NonZeroU32::new(4000).unwrap(), ..Config::default() };
    let service = Scripted(|request: InferRequest, _| async move {
        // Answers leave in another order than requests came.
        for _ in 0..request.id.len() % 3 {
            tokio::task::yield_now().await;
        }
        Ok(echo(request))
    });
    let (connection, _server) = start(service, &config);
    let calls = (0..4000usize).map(|n| {
        let connection = &connection;
        async move {
            let size = if n % 100 == 0 { 200_000 } else { n % 977 };
            let answer = connection.infer(&request(n.to_string(), size), ANY_TIME).await.unwrap();
            assert_eq!(answer.id, n.to_string());
            assert_eq!(answer.outputs[0].tensor.data().len(), size);
        }
    });
    futures::future::join_all(calls).await;
    assert_eq!(connection.in_flight(), 0);
}

#[tokio::test]
async fn tcp_carries_frames_as_well_and_what_came_with_the_agreement_is_not_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    let config = Config::default();
    let connection = Connection::new("tcp".into(), near.into(), b"", Negotiated::of(&config), &config);
    let server = async {
        let mut first = [0; 40];
        far.read_exact(&mut first).await.unwrap();
        let service = Arc::new(Scripted(|request, _| async move { Ok(echo(request)) }));
        serve(far.into(), &first, service, &config.into(), CancellationToken::new()).await
    };
    let ask = request("early", 3000);
    tokio::select! {
        answer = connection.infer(&ask, ANY_TIME) => assert_eq!(answer.unwrap().id, "early"),
        end = server => panic!("{end:?}"),
    }
}

#[tokio::test]
async fn an_error_of_the_service_keeps_its_class_and_words() {
    let failure = Error::UnknownModel { name: "m".into() };
    let words = failure.to_string();
    let service = Scripted(move |_, _| std::future::ready(Err(failure.clone())));
    let (connection, _server) = start(service, &Config::default());
    let error = connection.infer(&request("", 8), ANY_TIME).await.unwrap_err();
    assert_eq!(error, Error::Remote { code: Code::NotFound, message: words });
}

/// Counts itself while it lives.
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

/// A service whose requests never end, and how many are in it.
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

#[tokio::test]
async fn a_dropped_call_is_dropped_at_the_server() {
    let (service, count, changed) = endless();
    let (connection, _server) = start(service, &Config::default());
    let ask = request("", 8);
    tokio::select! {
        answer = connection.infer(&ask, ANY_TIME) => panic!("{answer:?}"),
        () = until(&count, &changed, 1) => {}
    }
    until(&count, &changed, 0).await;
    assert!(connection.is_open(), "only the one call is gone");
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_requests_along() {
    let (service, count, changed) = endless();
    let (connection, server) = start(service, &Config::default());
    let connection = Arc::new(connection);
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.infer(&request("", 8), ANY_TIME).await })
        })
        .collect();
    until(&count, &changed, 5).await;
    calls.iter().for_each(JoinHandle::abort);
    for call in calls {
        assert!(call.await.unwrap_err().is_cancelled());
    }
    drop(connection);
    until(&count, &changed, 0).await;
    server.task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_the_wait_and_is_told_to_the_server() {
    let (seen, mut told) = tokio::sync::mpsc::channel(1);
    let service = Scripted(move |_, context: Context| {
        seen.try_send((context.transport, context.deadline.unwrap() - context.arrived)).unwrap();
        std::future::pending()
    });
    let (connection, _server) = start(service, &Config::default());
    let deadline = Some((Instant::now() + Duration::from_millis(40)).into_std());
    let error = connection
        .infer(&request("", 8), &CallContext { deadline, traceparent: None, token: None, share: None })
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::DeadlineExceeded { waited } if waited >= Duration::from_millis(40)),
        "{error:?}"
    );
    let (transport, remaining) = told.recv().await.unwrap();
    assert_eq!(transport, Transport::Frames);
    assert!(remaining <= Duration::from_millis(40) && remaining > Duration::from_millis(20), "{remaining:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hung_server_is_noticed_and_every_call_fails() {
    let (near, far) = UnixStream::pair().unwrap();
    let config = Config::default();
    let connection = Connection::new("hung".into(), near.into(), b"", Negotiated::of(&config), &config);
    let ask = request("", 100);
    let (first, second) = tokio::join!(connection.infer(&ask, ANY_TIME), connection.infer(&ask, ANY_TIME));
    let expected =
        Error::Transport { peer: "hung".into(), message: "no sign of life in 5s after a ping".into() };
    assert_eq!(first, Err(expected.clone()));
    assert_eq!(second, Err(expected));
    assert!(!connection.is_open());
    drop(far);
}

#[tokio::test(start_paused = true)]
async fn a_hung_client_is_noticed_and_its_requests_dropped() {
    let (near, far) = UnixStream::pair().unwrap();
    let (service, ..) = endless();
    let end =
        serve(far.into(), b"", Arc::new(service), &Config::default().into(), CancellationToken::new()).await;
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    drop(near);
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_is_no_sign_of_death() {
    let service = Scripted(|request, _| async move {
        tokio::time::sleep(Duration::from_secs(600)).await;
        Ok(echo(request))
    });
    let (connection, _server) = start(service, &Config::default());
    assert_eq!(connection.infer(&request("slow", 8), ANY_TIME).await.unwrap().id, "slow");
}

#[tokio::test]
async fn requests_over_the_bound_are_refused_as_overload() {
    let config = Config { max_in_flight: NonZeroU32::new(2).unwrap(), ..Config::default() };
    let (service, count, changed) = endless();
    let (connection, _server) = start(service, &config);
    let ask = request("", 8);
    let two = async { tokio::join!(connection.infer(&ask, ANY_TIME), connection.infer(&ask, ANY_TIME)) };
    tokio::select! {
        answers = two => panic!("{answers:?}"),
        () = async {
            until(&count, &changed, 2).await;
            let refused = connection.infer(&ask, ANY_TIME).await.unwrap_err();
            assert_eq!(refused.code(), Code::Overloaded);
        } => {}
    }
}

#[tokio::test]
async fn a_client_that_ignores_the_bound_is_refused_by_the_server() {
    let server_config = Config { max_in_flight: NonZeroU32::new(2).unwrap(), ..Config::default() };
    let (near, far) = UnixStream::pair().unwrap();
    let no_limits =
        Negotiated { max_body_bytes: u32::MAX, max_in_flight: u32::MAX, tokens: false, shares: false };
    let connection = Connection::new("pair".into(), near.into(), b"", no_limits, &Config::default());
    let (service, ..) = endless();
    let server = tokio::spawn(async move {
        serve(far.into(), b"", Arc::new(service), &server_config.into(), CancellationToken::new()).await
    });
    let ask = request("", 8);
    let calls = (0..3).map(|_| Box::pin(connection.infer(&ask, ANY_TIME)));
    let (first, ..) = futures::future::select_all(calls).await;
    assert_eq!(first.unwrap_err().code(), Code::Overloaded);
    server.abort();
}

#[tokio::test]
async fn requests_of_all_connections_share_one_budget() {
    const BODY: usize = 300_000;
    let limits = Limits { budget: Budget::new(BODY * 3 / 2), ..Config::default().into() };
    let gate = Arc::new(Notify::new());
    let entered = Arc::new(Notify::new());
    let connect = || {
        let (near, far) = UnixStream::pair().unwrap();
        let (limits, gate, entered) = (limits.clone(), gate.clone(), entered.clone());
        let service = Scripted(move |request: InferRequest, _| {
            let (gate, entered) = (gate.clone(), entered.clone());
            async move {
                if request.id == "held" {
                    entered.notify_one();
                    gate.notified().await;
                }
                Ok(echo(request))
            }
        });
        tokio::spawn(async move {
            serve(far.into(), b"", Arc::new(service), &limits, CancellationToken::new()).await
        });
        Connection::new(
            "pair".into(),
            near.into(),
            b"",
            Negotiated::of(&Config::default()),
            &Config::default(),
        )
    };
    let (first, second) = (connect(), connect());
    let held = tokio::spawn(async move { first.infer(&request("held", BODY), ANY_TIME).await });
    entered.notified().await;
    let refused = second.infer(&request("more", BODY), ANY_TIME).await.unwrap_err();
    assert_eq!(refused.code(), Code::Overloaded);
    assert!(refused.to_string().contains("max_bytes_in_flight"), "{refused}");
    // What was passed over leaves the connection whole, and what fits is served.
    assert_eq!(second.infer(&request("small", 100_000), ANY_TIME).await.unwrap().id, "small");
    gate.notify_one();
    assert_eq!(held.await.unwrap().unwrap().id, "held");
    assert_eq!(second.infer(&request("again", BODY), ANY_TIME).await.unwrap().id, "again");
}

#[tokio::test]
async fn draining_answers_everything_that_was_accepted_and_then_closes() {
    let gate = Arc::new(Notify::new());
    let (count, changed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let service = {
        let (gate, count, changed) = (Arc::clone(&gate), Arc::clone(&count), Arc::clone(&changed));
        Scripted(move |request, _| {
            let (gate, alive) = (Arc::clone(&gate), Alive::new(&count, &changed));
            async move {
                gate.notified().await;
                drop(alive);
                Ok(echo(request))
            }
        })
    };
    let (connection, server) = start(service, &Config::default());
    let connection = Arc::new(connection);
    let calls: Vec<_> = (0..10)
        .map(|n| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.infer(&request(n.to_string(), 3000), ANY_TIME).await })
        })
        .collect();
    until(&count, &changed, 10).await;
    server.drain.cancel();
    while connection.is_open() {
        tokio::task::yield_now().await;
    }
    let refused = connection.begin().map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    gate.notify_waiters();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    server.task.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_when_the_server_drains_under_load() {
    for round in 0..20 {
        let service = Scripted(|request, _| async move {
            tokio::task::yield_now().await;
            Ok(echo(request))
        });
        let (connection, server) = start(service, &Config::default());
        let connection = Arc::new(connection);
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let connection = Arc::clone(&connection);
                tokio::spawn(async move {
                    let mut answered = 0;
                    // What has begun must be answered, however close the drain is.
                    while let Ok(call) = connection.begin() {
                        call.infer(&request("x", 100), ANY_TIME).await.unwrap();
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        for _ in 0..round * 20 {
            tokio::task::yield_now().await;
        }
        server.drain.cancel();
        for caller in callers {
            let _: usize = caller.await.unwrap();
        }
        server.task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_panic_in_the_service_fails_that_request_alone() {
    let service = Scripted(|request: InferRequest, _| async move {
        tokio::task::yield_now().await;
        assert_ne!(request.id, "bad", "scripted panic");
        Ok(echo(request))
    });
    let (connection, _server) = start(service, &Config::default());
    let error = connection.infer(&request("bad", 8), ANY_TIME).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert_eq!(connection.infer(&request("good", 8), ANY_TIME).await.unwrap().id, "good");
}

#[tokio::test]
async fn a_body_over_the_servers_limit_fails_here_and_leaves_the_connection_alone() {
    let config = Config { max_body_bytes: NonZeroU32::new(4096).unwrap(), ..Config::default() };
    let (connection, _server) = start(Scripted(|request, _| async move { Ok(echo(request)) }), &config);
    let error = connection.infer(&request("", 5000), ANY_TIME).await.unwrap_err();
    assert_eq!(error, Error::BodyTooLarge { limit: 4096 });
    connection.infer(&request("", 1000), ANY_TIME).await.unwrap();
}

#[tokio::test]
async fn an_answer_over_the_limit_becomes_an_error() {
    let config = Config { max_body_bytes: NonZeroU32::new(4096).unwrap(), ..Config::default() };
    let service = Scripted(|mut ask: InferRequest, _| async move {
        ask.inputs = request("", 5000).inputs;
        Ok(echo(ask))
    });
    let (connection, _server) = start(service, &config);
    let error = connection.infer(&request("", 10), ANY_TIME).await.unwrap_err();
    assert_eq!(error.code(), Code::TooLarge);
}

#[tokio::test]
async fn garbage_and_lying_lengths_end_the_connection() {
    let config = Config { max_body_bytes: NonZeroU32::new(4096).unwrap(), ..Config::default() };
    let lying = header::Header { kind: header::Kind::Request, id: 1, body: 4104 }.to_bytes();
    let answer = header::Header { kind: header::Kind::Response, id: 1, body: 0 }.to_bytes();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &lying, &answer, &[0; 64]] {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(bytes).await.unwrap();
        let (service, ..) = endless();
        let end =
            serve(far.into(), b"", Arc::new(service), &config.clone().into(), CancellationToken::new()).await;
        assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::InvalidData, "{bytes:?}");
    }
}

#[tokio::test]
async fn a_malformed_request_is_answered_and_the_next_one_served() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let service = Arc::new(Scripted(|request, _| async move { Ok(echo(request)) }));
    let server = tokio::spawn(async move {
        serve(far.into(), b"", service, &Config::default().into(), CancellationToken::new()).await
    });
    let header = header::Header { kind: header::Kind::Request, id: 5, body: 8 };
    near.write_all(&header.to_bytes()).await.unwrap();
    near.write_all(&[0xff; 8]).await.unwrap();
    let mut answer = [0; header::LENGTH];
    near.read_exact(&mut answer).await.unwrap();
    let answer = header::Header::from_bytes(&answer).unwrap();
    assert_eq!((answer.kind, answer.id), (header::Kind::Failure, 5));
    assert!(!server.is_finished());
    server.abort();
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_not_read_either() {
    let config = Config { max_queued_bytes: NonZeroUsize::new(1 << 20).unwrap(), ..Config::default() };
    let started = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&started);
    let service = Scripted(move |request, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok(echo(request)) }
    });
    let (near, far) = UnixStream::pair().unwrap();
    let server = tokio::spawn(async move {
        serve(far.into(), b"", Arc::new(service), &config.into(), CancellationToken::new()).await
    });
    let envelope = codec::Envelope::default();
    let frame = codec::encode_request(1, &request("", 100_000), &envelope, 1 << 20).unwrap().chunks.concat();
    let frames = 200;
    // The far end takes what its bound and the kernel's buffers hold, and then the socket fills up.
    let mut written = 0;
    let mut idle = 0;
    while idle < 1000 {
        match near.try_write(&frame[written % frame.len()..]) {
            Ok(count) => (written, idle) = (written + count, 0),
            Err(_) => idle += 1,
        }
        assert!(written < frames * frame.len(), "read without bound");
        tokio::task::yield_now().await;
    }
    assert!(started.load(Ordering::SeqCst) < 40, "{started:?} of {frames} started");
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_survive_partial_writes() {
    let service = Scripted(|request, _| std::future::ready(Ok(echo(request))));
    let (connection, server) = start(service, &Config::default());
    for n in 0..200 {
        let answer = connection.infer(&request(n.to_string(), 602_112), ANY_TIME).await;
        if let Err(error) = answer {
            panic!("{error} {:?}", server.task.await);
        }
    }
}
