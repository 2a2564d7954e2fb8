//! Sends single HTTP/2 frames, also in ways that no library does.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};

use super::process::PATIENCE;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// A frame as the server sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
}

/// A client that has sent the preface and its settings.
pub struct Peer {
    stream: TcpStream,
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// Fields of a head, neither compressed nor indexed.
pub fn fields(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in pairs {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(text.len() as u8);
            block.extend(text.as_bytes());
        }
    }
    block
}

/// The head of a gRPC request for a prediction.
pub fn call() -> Vec<u8> {
    fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/inference.GRPCInferenceService/ModelInfer"),
        (":authority", "parm"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ])
}

/// The head of a GET request.
pub fn get(path: &str) -> Vec<u8> {
    fields(&[(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "parm")])
}

impl Peer {
    /// Connects, with these settings (identifier and value).
    pub fn connect(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut peer = Self { stream };
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend(name.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        let greeting = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &payload)[..]].concat();
        peer.write(&greeting).unwrap();
        peer
    }

    /// Sends bytes. Fails if the server has closed.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Limits the time of a write.
    pub fn give_up_after(&self, time: std::time::Duration) {
        self.stream.set_write_timeout(Some(time)).unwrap();
    }

    /// Reads in a thread until the server closes, and answers pings. The thread returns the last frame.
    pub fn read_all(&self) -> JoinHandle<Option<Frame>> {
        let mut stream = self.stream.try_clone().unwrap();
        thread::spawn(move || {
            let mut last = None;
            while let Some((answered, payload)) = next(&mut stream) {
                if answered == (Frame { kind: PING, flags: 0 }) {
                    let _ = stream.write_all(&frame(PING, 1, 0, &payload));
                }
                last = Some(answered);
            }
            last
        })
    }

    pub fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn next(stream: &mut TcpStream) -> Option<(Frame, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).ok()?;
    Some((Frame { kind: head[3], flags: head[4] }, payload))
}
