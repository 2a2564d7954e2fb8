//! Sends floods of HTTP/2 frames to the gRPC listeners of a frontend and a worker.
//!
//! Memory stays bounded, other clients are answered during and after each flood, and no process ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, Peer, RESET, SETTINGS, WINDOW_UPDATE,
    call, fields, frame, get,
};
use crate::support::{Parm, http};

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
            let before = parm.memory("VmRSS");
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
                let grown = parm.memory("VmHWM").saturating_sub(before);
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

/// Stream numbers of one batch: odd and increasing.
fn streams(batch: u32) -> impl Iterator<Item = u32> {
    (0..BATCH).map(move |at| 2 * (batch * BATCH + at) + 1)
}

fn batch_of(batch: u32, frames: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    streams(batch).flat_map(frames).collect()
}

#[test]
fn floods_of_streams_stay_bounded() {
    let scenes = Scenes::new();
    let open = |stream| frame(HEADERS, END_HEADERS, stream, &call());
    let reset = |stream| frame(RESET, 0, stream, &8u32.to_be_bytes());
    let page = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/v2/openapi.json"));
    for reads in [false, true] {
        scenes.flood("rapid resets of whole requests", &[], reads, |batch| {
            batch_of(batch, |stream| [page(stream), reset(stream)].concat())
        });
        scenes.flood("rapid resets of open calls", &[], reads, |batch| {
            batch_of(batch, |stream| [open(stream), reset(stream)].concat())
        });
        // With a window of 0 no answer can be sent.
        scenes.flood("answers that have no window", &[(4, 0)], reads, |batch| batch_of(batch, page));
    }
    scenes.flood("streams that never end, with a little of a body", &[], true, |batch| {
        batch_of(batch, |stream| [open(stream), frame(DATA, 0, stream, &[0, 0, 0])].concat())
    });
    // A window update of 0 is a stream error, so the server resets the stream.
    let closed = scenes.flood("resets that the client provokes", &[], true, |batch| {
        batch_of(batch, |stream| [open(stream), frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat())
    });
    assert_eq!(closed, [true, true], "a client that only causes errors is disconnected");
}

#[test]
fn floods_of_headers_stay_bounded() {
    let scenes = Scenes::new();
    for (name, part) in [("small", fields(&[("x", &"y".repeat(100))])), ("empty", Vec::new())] {
        let closed = scenes.flood(&format!("a head that goes on in {name} frames"), &[], true, |batch| {
            let first = if batch == 0 { frame(HEADERS, 0, 1, &call()) } else { Vec::new() };
            [first, frame(CONTINUATION, 0, 1, &part).repeat(BATCH as usize)].concat()
        });
        assert_eq!(closed, [true, true], "an endless head of {name} frames ends the connection");
    }
    // An entry of 4000 bytes in the dynamic table, and a head that names it as often as a frame can.
    let entry = [&[0x40, 1, b'x', 127, 0x81 + 0x1e - 1, 0x1e][..], &vec![b'y'; 3900]].concat();
    let bomb = [&call()[..], &entry, &vec![0x80 | 62; 8000]].concat();
    scenes.flood("heads that are much larger than their frames", &[], true, |batch| {
        let streams = (0..8).map(|at| 2 * (batch * 8 + at) + 1);
        streams.flat_map(|stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb)).collect()
    });
}

#[test]
fn floods_of_small_frames_stay_bounded() {
    let scenes = Scenes::new();
    for (name, one) in [
        ("settings", frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("pings", frame(PING, 0, 0, &[7; 8])),
        ("frames of an unknown type", frame(0x77, 0, 0, &[7; 64])),
        ("empty data", frame(DATA, 0, 1, b"")),
        ("nothing but padding", frame(DATA, 8, 1, &[200; 201])),
        ("messages of nothing", frame(DATA, 0, 1, &[0; 5])),
    ] {
        for reads in [false, true] {
            scenes.flood(&format!("{name}, reads: {reads}"), &[], reads, |sent| {
                let first = if sent == 0 { frame(HEADERS, END_HEADERS, 1, &call()) } else { Vec::new() };
                [first, one.repeat(BATCH as usize)].concat()
            });
        }
    }
}
