//! Sends floods of HTTP/2 frames and malformed gRPC messages to the gRPC listeners of a frontend and a worker.
//!
//! Memory stays bounded, other clients are answered during and after each flood, and no process ends.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::Request;
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;

use crate::support::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY, Peer, RESET, SETTINGS,
    WINDOW_UPDATE, call, fields, frame, get,
};
use crate::support::process::PATIENCE;
use crate::support::{Parm, affine, http};

/// Bytes that a flood may add to a process at its peak. A connection may buffer 8 MiB, and the allocator keeps freed memory.
const MOST_BYTES: usize = 64 << 20;

/// Duration of a flood that the server does not end.
const FLOOD: Duration = Duration::from_millis(500);

/// Frames of one write.
const BATCH: u32 = 512;

/// A frontend and a worker.
struct Scenes([Parm; 2]);

impl Scenes {
    fn new() -> Self {
        Self([Parm::serve(&["--instances", "1"]), Parm::worker(&[])])
    }

    /// Floods both processes while an honest client sends requests. Returns whether each server ended the connection.
    fn flood(
        &self,
        name: &str,
        settings: &[(u16, u32)],
        reads: bool,
        batch: impl Fn(u32) -> Vec<u8> + Sync,
    ) -> [bool; 2] {
        self.0.each_ref().map(|parm| {
            let before = memory(parm, "VmRSS:");
            let ended = AtomicBool::new(false);
            let closed = thread::scope(|scope| {
                scope.spawn(|| {
                    while !ended.load(Ordering::SeqCst) {
                        assert_serves(parm, name);
                    }
                });
                let mut peer = Peer::connect(parm.grpc, settings);
                let reader = reads.then(|| peer.read_all());
                peer.give_up_after(FLOOD);
                let began = Instant::now();
                let mut sent = 0;
                let closed = loop {
                    match peer.write(&batch(sent)) {
                        // A server that stops reading ends the flood too, and may keep the bytes that it has read.
                        Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
                        Ok(()) => sent += 1,
                    }
                    if began.elapsed() > FLOOD {
                        break false;
                    }
                };
                let grown = memory(parm, "VmHWM:").saturating_sub(before);
                eprintln!("{name}: {sent} batches, closed {closed}, {} KiB more at the peak", grown >> 10);
                assert!(grown < MOST_BYTES, "{name}: {grown} bytes more");
                peer.close();
                let last = reader.map(|reader| reader.join().unwrap());
                ended.store(true, Ordering::SeqCst);
                closed || last.flatten().is_some_and(|frame| frame.kind == GOAWAY)
            });
            assert_serves(parm, name);
            closed
        })
    }
}

fn assert_serves(parm: &Parm, during: &str) {
    let answer = http::get(parm.http, "/v2/health/ready");
    assert_eq!(answer.status, 200, "during {during}: {}", answer.body_text());
}

fn memory(parm: &Parm, what: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", parm.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Stream numbers of one batch: odd and increasing.
fn streams(batch: u32) -> impl Iterator<Item = u32> {
    (0..BATCH).map(move |at| 2 * (batch * BATCH + at) + 1)
}

fn batch_of(batch: u32, frames: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    streams(batch).flat_map(frames).collect()
}

#[test]
fn reset_floods_stay_bounded() {
    let scenes = Scenes::new();
    let reset = |stream| frame(RESET, 0, stream, &8u32.to_be_bytes());
    for reads in [false, true] {
        scenes.flood("rapid resets of whole requests", &[], reads, |batch| {
            batch_of(batch, |stream| {
                [frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/v2/models")), reset(stream)].concat()
            })
        });
        scenes.flood("rapid resets of open calls", &[], reads, |batch| {
            batch_of(batch, |stream| [frame(HEADERS, END_HEADERS, stream, &call()), reset(stream)].concat())
        });
    }
    // A window update of 0 is a stream error, so the server resets the stream.
    let closed = scenes.flood("resets that the client provokes", &[], true, |batch| {
        batch_of(batch, |stream| {
            let nothing = frame(WINDOW_UPDATE, 0, stream, &0u32.to_be_bytes());
            [frame(HEADERS, END_HEADERS, stream, &call()), nothing].concat()
        })
    });
    assert_eq!(closed, [true, true], "a client that only causes errors is disconnected");
}

#[test]
fn header_floods_stay_bounded() {
    let scenes = Scenes::new();
    let part = fields(&[("x", &"y".repeat(100))]);
    let closed = scenes.flood("a head that goes on in small frames", &[], true, |batch| {
        let first = if batch == 0 { frame(HEADERS, 0, 1, &call()) } else { Vec::new() };
        [first, (0..BATCH).flat_map(|_| frame(CONTINUATION, 0, 1, &part)).collect()].concat()
    });
    assert_eq!(closed, [true, true], "an endless head ends the connection");
    let closed = scenes.flood("a head that goes on in empty frames", &[], true, |batch| {
        let first = if batch == 0 { frame(HEADERS, 0, 1, &call()) } else { Vec::new() };
        [first, (0..BATCH).flat_map(|_| frame(CONTINUATION, 0, 1, b"")).collect()].concat()
    });
    assert_eq!(closed, [true, true], "an endless head of empty frames ends the connection");
    // An entry of 4000 bytes in the dynamic table, and a head that names it as often as a frame can.
    let entry = [&[0x40, 1, b'x', 127, 0x81 + 0x1e - 1, 0x1e][..], &vec![b'y'; 3900]].concat();
    let bomb = [&call()[..], &entry, &vec![0x80 | 62; 8000]].concat();
    scenes.flood("heads that are much larger than their frames", &[], true, |batch| {
        let streams = (0..8).map(|at| 2 * (batch * 8 + at) + 1);
        streams.flat_map(|stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb)).collect()
    });
    scenes.flood("heads after heads on one stream", &[], true, |batch| {
        let first = if batch == 0 { frame(HEADERS, END_HEADERS, 1, &call()) } else { Vec::new() };
        [first, (0..BATCH).flat_map(|_| frame(HEADERS, END_HEADERS, 1, &part)).collect()].concat()
    });
}

fn control_frame_floods(reads: bool) {
    let scenes = Scenes::new();
    let kinds: [(&str, Vec<u8>); 6] = [
        ("settings", frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("empty settings", frame(SETTINGS, 0, 0, b"")),
        ("pings", frame(PING, 0, 0, &[7; 8])),
        ("windows of the connection", frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes())),
        ("priorities", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 15])),
        ("frames of an unknown type", frame(0x77, 0, 0, &[7; 64])),
    ];
    for (name, one) in kinds {
        let batch = one.repeat(BATCH as usize);
        scenes.flood(&format!("{name}, reads: {reads}"), &[], reads, |_| batch.clone());
    }
}

#[test]
fn control_frame_floods_stay_bounded() {
    control_frame_floods(true);
}

#[test]
fn control_frame_floods_stay_bounded_when_nothing_is_read() {
    control_frame_floods(false);
}

#[test]
fn stream_floods_stay_bounded() {
    let scenes = Scenes::new();
    scenes.flood("thousands of streams that never end", &[], true, |batch| {
        batch_of(batch, |stream| frame(HEADERS, END_HEADERS, stream, &call()))
    });
    scenes.flood("half-closed streams with a little of a body", &[], true, |batch| {
        batch_of(batch, |stream| {
            [frame(HEADERS, END_HEADERS, stream, &call()), frame(DATA, 0, stream, &[0, 0, 0])].concat()
        })
    });
    // With a window of 0 no answer can be sent.
    for reads in [false, true] {
        scenes.flood("answers that have no window", &[(4, 0)], reads, |batch| {
            batch_of(batch, |stream| {
                frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/v2/openapi.json"))
            })
        });
    }
    scenes.flood("windows of streams that grow by a byte", &[(4, 0)], true, |batch| {
        let first = match batch {
            0 => frame(HEADERS, END_HEADERS | END_STREAM, 1, &get("/v2/openapi.json")),
            _ => Vec::new(),
        };
        [first, frame(WINDOW_UPDATE, 0, 1, &1u32.to_be_bytes()).repeat(BATCH as usize)].concat()
    });
}

#[test]
fn data_floods_stay_bounded() {
    let scenes = Scenes::new();
    let floods: [(&str, Vec<u8>); 4] = [
        ("empty data", frame(DATA, 0, 1, b"")),
        ("data of a byte", frame(DATA, 0, 1, b"\0")),
        ("nothing but padding", frame(DATA, 8, 1, &[200; 201])),
        ("messages of nothing", frame(DATA, 0, 1, &[0; 5])),
    ];
    for (name, one) in floods {
        let batch = one.repeat(BATCH as usize);
        scenes.flood(name, &[], true, |sent| {
            let first = if sent == 0 { frame(HEADERS, END_HEADERS, 1, &call()) } else { Vec::new() };
            [first, batch.clone()].concat()
        });
    }
}

/// A message as gRPC frames it.
fn framed(flag: u8, length: u32, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &length.to_be_bytes(), message].concat()
}

fn whole() -> Vec<u8> {
    let message = parm_protocol::grpc::convert::request::encode(affine::request(&affine::rows(1, 3)));
    let message = message.encode_to_vec();
    framed(0, message.len() as u32, &message)
}

/// Sends a call whose body has these parts. Returns its gRPC status and the number of parts that the server took.
async fn status(
    address: SocketAddr,
    parts: impl Iterator<Item = Vec<u8>> + Send + 'static,
) -> (String, usize) {
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let parts = futures::stream::iter(parts).map(move |part| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Infallible>(Frame::data(Bytes::from(part)))
    });
    let request = Request::post(format!("http://{address}/inference.GRPCInferenceService/ModelInfer"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(StreamBody::new(parts))
        .unwrap();
    let answer = tokio::time::timeout(PATIENCE, sender.send_request(request)).await;
    let (head, body) = answer.expect("no answer").unwrap().into_parts();
    let trailers = tokio::time::timeout(PATIENCE, body.collect()).await.expect("the answer does not end");
    let trailers = trailers.ok().and_then(|body| body.trailers().cloned()).unwrap_or_default();
    let status = head.headers.get("grpc-status").or(trailers.get("grpc-status"));
    (status.unwrap().to_str().unwrap().to_owned(), sent.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_messages_are_read_however_they_are_split() {
    let scenes = Scenes::new();
    let whole = whole();
    let cut = |at: usize| vec![whole[..at].to_vec(), whole[at..].to_vec()];
    let cases: Vec<(&str, Vec<Vec<u8>>, &str)> = vec![
        ("one part", vec![whole.clone()], "0"),
        ("a byte at a time", whole.chunks(1).map(<[u8]>::to_vec).collect(), "0"),
        ("the length split", cut(3), "0"),
        ("the message behind its length", cut(5), "0"),
        ("the last byte apart", cut(whole.len() - 1), "0"),
        ("empty parts between", vec![vec![], whole[..7].to_vec(), vec![], whole[7..].to_vec(), vec![]], "0"),
        ("nothing", vec![], "3"),
        ("half a length", vec![vec![0, 0, 0]], "3"),
        ("a length and nothing", vec![framed(0, 100, b"")], "3"),
        ("less than its length", vec![framed(0, 100, &[0; 99])], "3"),
        ("a huge length", vec![framed(0, u32::MAX, b"x")], "8"),
        ("a huge length in two parts", vec![vec![0, 0xff], vec![0xff, 0xff, 0xff, 1]], "8"),
        ("marked as compressed", vec![framed(1, 4, b"abcd")], "3"),
        ("an unknown flag", vec![framed(9, 4, b"abcd")], "3"),
    ];
    for parm in &scenes.0 {
        for (name, parts, expected) in &cases {
            let before = memory(parm, "VmRSS:");
            let (status, _) = status(parm.grpc, parts.clone().into_iter()).await;
            assert_eq!(status, *expected, "{name}");
            assert!(memory(parm, "VmHWM:").saturating_sub(before) < MOST_BYTES, "{name}");
        }
        assert_serves(parm, "odd messages");
    }
}

/// A call has one message. A client that sends more must not fill the budget that all requests share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_is_refused_when_it_sends_more_than_one_message() {
    const PARTS: usize = 2000;
    let scenes = Scenes::new();
    let large = framed(0, 1 << 20, &vec![0; 1 << 20]);
    for parm in &scenes.0 {
        let two = vec![[whole(), whole()].concat()].into_iter();
        assert_eq!(status(parm.grpc, two).await.0, "3", "two messages in one part");
        let two = vec![whole(), whole()].into_iter();
        assert_eq!(status(parm.grpc, two).await.0, "3", "two messages");
        let before = memory(parm, "VmRSS:");
        let large = large.clone();
        let parts = std::iter::once(whole()).chain(std::iter::repeat_n(large, PARTS));
        let (status, sent) = status(parm.grpc, parts).await;
        assert_eq!(status, "3", "two gigabytes of messages");
        assert!(sent < PARTS / 10, "{sent} parts were read");
        assert!(memory(parm, "VmHWM:").saturating_sub(before) < MOST_BYTES);
        assert_serves(parm, "messages without end");
    }
}
